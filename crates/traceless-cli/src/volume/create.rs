//! `traceless volume create`

use super::key;
use crate::args::{CadenceName, CipherName, CreateArgs, MapKind, MapPlaceName};
use crate::failure::Failure;
use crate::output::{Meter, print_json, print_line};
use crate::signals;
use serde::Serialize;
use std::sync::Arc;
use traceless_block::detwo::Refresh;
use traceless_block::registry;
use traceless_core::clock::Monotonic;
use traceless_core::scheme::contract::{BlockScheme, MapPlace, SchemeKind, SchemeOptions};
use traceless_core::seal::Cipher;
use traceless_volume::volume::{CreateOptions, create, uuid_text};

/// Bytes of a block.
pub const BLOCK_LEN: usize = 4096;

#[derive(Serialize)]
struct CreateReport {
    schema: &'static str,
    scheme: &'static str,
    cipher: &'static str,
    uuid: String,
    blocks: u64,
    block_len: usize,
    refresh: Option<String>,
    map: Option<&'static str>,
    map_entries: Option<&'static str>,
    image_bytes: u64,
    generation: u64,
    filled: bool,
}

pub fn run(args: &CreateArgs) -> Result<(), Failure> {
    let scheme = scheme(args)?;
    if args.unfilled {
        crate::output::print_error(
            "--unfilled: the image's holes tell everybody what was never written; for tests only",
        );
    }
    let key = key::new(&args.image.key)?;
    let options = CreateOptions {
        scheme: scheme.clone(),
        cipher: cipher(args.cipher),
        kdf: key::kdf(&args.kdf)?,
        force: args.force,
        unfilled: args.unfilled,
        anchor: args.anchor.anchor.clone(),
    };
    let interrupted = signals::flag()?;
    let mut meter = Meter::new("filling", args.progress.progress);
    let created = create(&args.image.image, &key, &options, &mut |done, all| {
        meter.update(done, all);
        !interrupted.load(std::sync::atomic::Ordering::Relaxed)
    });
    meter.finish();
    let created = created?;
    let facts = scheme.facts(0);
    let report = CreateReport {
        schema: "traceless.volume.create.v1",
        scheme: scheme.name(),
        cipher: created.header.cipher.name(),
        uuid: uuid_text(&created.header.uuid),
        blocks: scheme.blocks(),
        block_len: scheme.block_len(),
        refresh: facts.refresh,
        map: facts.map,
        map_entries: facts.map_entries,
        image_bytes: created.header.image_len,
        generation: created.generation,
        filled: !args.unfilled,
    };
    if args.json {
        return print_json(&report);
    }
    print_line(&format!(
        "{}: {} volume of {} blocks of {} bytes, {} bytes in all, sealed with {}",
        args.image.image.display(),
        report.scheme,
        report.blocks,
        report.block_len,
        report.image_bytes,
        report.cipher
    ));
    if args.anchor.anchor.is_none() {
        print_line(
            "No anchor: an older copy of the whole image that is put back will not be noticed.",
        );
    }
    if scheme.name() == "plain" {
        print_line("The plain scheme hides contents only: every write shows its address.");
    }
    Ok(())
}

/// The cipher of this name; for `auto`, the one that seals a block fastest on this machine.
pub fn cipher(name: CipherName) -> Cipher {
    match name {
        CipherName::Auto => Cipher::fastest(BLOCK_LEN, &Monotonic::start()),
        CipherName::Aes256Gcm => Cipher::AesGcm,
        CipherName::Aegis256 => Cipher::Aegis256,
        CipherName::Aegis256X2 => Cipher::Aegis256X2,
        CipherName::Aegis256X4 => Cipher::Aegis256X4,
    }
}

/// The scheme that the arguments describe.
pub fn scheme(args: &CreateArgs) -> Result<Arc<dyn BlockScheme>, Failure> {
    let size = args.size.unwrap_or(0);
    if size == 0 {
        return Err(Failure::usage("--size 0: a volume must hold something"));
    }
    let kind = registry::named(&args.scheme).expect("clap has checked");
    refuse_options_of_other_schemes(args, kind)?;
    let blocks = size.div_ceil(BLOCK_LEN as u64);
    (kind.choose)(blocks, BLOCK_LEN, &options(args)?).map_err(Failure::usage)
}

fn options(args: &CreateArgs) -> Result<SchemeOptions, Failure> {
    let flags = &args.sq;
    let is_paper = flags.cadence == CadenceName::Paper;
    if is_paper && !flags.insecure {
        return Err(Failure::usage(
            "--cadence paper lets flushes reveal which writes are near each other: give \
             --insecure to have it all the same",
        ));
    }
    if flags.insecure && !is_paper {
        return Err(Failure::usage("--insecure goes with --cadence paper"));
    }
    let refresh = args.refresh.as_deref().map(Refresh::parse).transpose();
    Ok(SchemeOptions {
        map: match args.map {
            MapPlaceName::Auto => None,
            MapPlaceName::Memory => Some(MapPlace::Memory),
            MapPlaceName::Disk => Some(MapPlace::Disk),
        },
        map_memory: args.map_memory,
        refresh: refresh.map_err(Failure::usage)?.map(|k| (k.p(), k.q())),
        pointers: args.map_entries.map(|entries| entries == MapKind::Pointers),
        fanout: flags.fanout,
        bucket: flags.bucket,
        paper_cadence: Some(is_paper),
        amortized: Some(flags.amortized),
    })
}

/// Refuses options that the scheme does not have.
fn refuse_options_of_other_schemes(args: &CreateArgs, kind: &SchemeKind) -> Result<(), Failure> {
    let given = [
        ("refresh", "refresh", args.refresh.is_some()),
        ("map-entries", "map-entries", args.map_entries.is_some()),
        ("fanout", "fanout", args.sq.fanout.is_some()),
        ("bucket", "bucket", args.sq.bucket.is_some()),
        ("cadence", "cadence", args.sq.cadence != CadenceName::Strict),
        ("insecure", "cadence", args.sq.insecure),
        ("amortized", "amortized", args.sq.amortized),
    ];
    for (flag, option, is_given) in given {
        if is_given && !kind.options.contains(&option) {
            let kinds = registry::KINDS.iter().filter(|kind| kind.options.contains(&option));
            let names: Vec<_> = kinds.map(|kind| kind.name).collect();
            let names = names.join(" or ");
            return Err(Failure::usage(format!("--{flag} goes with --scheme {names}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::SCHEMES;

    #[test]
    fn the_command_line_names_what_the_registry_has() {
        let kinds: Vec<_> = registry::KINDS.iter().map(|kind| (kind.name, kind.about)).collect();
        assert_eq!(kinds, SCHEMES);
    }
}
