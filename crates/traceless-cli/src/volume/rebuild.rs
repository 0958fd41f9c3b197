//! `traceless volume grow` and `traceless volume reencrypt`

use super::{create, key};
use crate::args::{GrowArgs, RebuildArgs, ReencryptArgs};
use crate::failure::Failure;
use crate::output::{Meter, print_json, print_line};
use crate::signals;
use crate::trace::Trace;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::Ordering;
use traceless_volume::format::UserKey;
use traceless_volume::volume::{Rebuild, RebuildOptions, Rebuilt, rebuild, uuid_text};

#[derive(Serialize)]
struct RebuildReport {
    schema: &'static str,
    scheme: &'static str,
    uuid: String,
    blocks_before: u64,
    blocks: u64,
    block_len: usize,
    size_bytes: u64,
    image_bytes: u64,
    generation: u64,
    writes: u64,
    copied: u64,
    resumed: bool,
    key_slots: usize,
}

pub fn grow(args: &GrowArgs) -> Result<(), Failure> {
    let key = key::existing(&args.image.key)?;
    let rebuild_kind = Rebuild::Grow { size: args.size };
    let report =
        run(&args.image.image, &key, &rebuild_kind, &args.rebuild, "traceless.volume.grow.v1")?;
    if args.rebuild.json {
        return print_json(&report);
    }
    let image_name = args.rebuild.into.as_ref().unwrap_or(&args.image.image).display();
    if report.blocks == report.blocks_before {
        print_line(&format!("{image_name}: holds {} bytes already", report.size_bytes));
        return Ok(());
    }
    print_line(&format!(
        "{image_name}: now {} bytes in {} blocks",
        report.size_bytes, report.blocks
    ));
    print_line("A file system in it grows on its own: resize2fs for ext4.");
    Ok(())
}

pub fn reencrypt(args: &ReencryptArgs) -> Result<(), Failure> {
    let key = key::existing(&args.image.key)?;
    let also = args.also_key_file.iter().map(|path| key::from_file(path)).collect::<Result<_, _>>();
    let rebuild_kind = Rebuild::Reencrypt {
        also: also?,
        drop_other_keys: args.drop_other_keys,
        cipher: args.cipher.map(create::cipher),
    };
    let schema = "traceless.volume.reencrypt.v1";
    let report = run(&args.image.image, &key, &rebuild_kind, &args.rebuild, schema)?;
    if args.rebuild.json {
        return print_json(&report);
    }
    let image_name = args.rebuild.into.as_ref().unwrap_or(&args.image.image).display();
    print_line(&format!("{image_name}: a new master key, {} key slots in use", report.key_slots));
    print_line("Older copies of the image, and of its header, still open with the old keys.");
    Ok(())
}

fn run(
    image: &Path,
    key: &UserKey,
    rebuild_kind: &Rebuild,
    args: &RebuildArgs,
    schema: &'static str,
) -> Result<RebuildReport, Failure> {
    let trace = Trace::without_secrets(args.trace.as_deref())?;
    let options = RebuildOptions {
        anchor: args.anchor.anchor.clone(),
        into: args.into.clone(),
        restart: args.restart,
        witness: trace.witness(),
    };
    let interrupted = signals::flag()?;
    let mut meters: Vec<(&'static str, Meter)> = vec![];
    let rebuilt = rebuild(image, key, rebuild_kind, &options, &mut |work, done, all| {
        if meters.last().is_none_or(|(last, _)| *last != work) {
            meters.last_mut().into_iter().for_each(|(_, meter)| meter.finish());
            meters.push((work, Meter::new(work, args.progress.progress)));
        }
        let (_, meter) = meters.last_mut().expect("just pushed");
        meter.update(done, all);
        !interrupted.load(Ordering::Relaxed)
    });
    meters.last_mut().into_iter().for_each(|(_, meter)| meter.finish());
    drop(options);
    let traced = trace.finish();
    let report = report(schema, &rebuilt?);
    traced.map(|()| report)
}

fn report(schema: &'static str, rebuilt: &Rebuilt) -> RebuildReport {
    let config = &rebuilt.header.scheme;
    RebuildReport {
        schema,
        scheme: config.name(),
        uuid: uuid_text(&rebuilt.header.uuid),
        blocks_before: rebuilt.blocks_before,
        blocks: config.blocks(),
        block_len: config.block_len(),
        size_bytes: config.blocks() * config.block_len() as u64,
        image_bytes: rebuilt.header.image_len,
        generation: rebuilt.generation,
        writes: rebuilt.writes,
        copied: rebuilt.copied,
        resumed: rebuilt.resumed,
        key_slots: rebuilt.key_slots,
    }
}
