//! `traceless volume create`

use super::{key, signals};
use crate::args::{CreateArgs, MapPlace, SchemeName};
use crate::failure::Failure;
use crate::output::{Meter, say, say_json};
use serde::Serialize;
use traceless::build::SchemeConfig;
use traceless::scheme::detwo::{Geometry, Refresh};
use traceless::scheme::random;
use traceless_volume::volume::{CreateOptions, create, uuid_text};

/// Bytes of a block.
const BLOCK_LEN: usize = 4096;

#[derive(Serialize)]
struct Made {
    schema: &'static str,
    scheme: &'static str,
    uuid: String,
    blocks: u64,
    block_len: usize,
    refresh: Option<String>,
    map: Option<&'static str>,
    image_bytes: u64,
    generation: u64,
    filled: bool,
}

pub fn run(args: &CreateArgs) -> Result<(), Failure> {
    let scheme = scheme(args)?;
    if args.unfilled {
        crate::output::complain(
            "--unfilled: the image's holes tell everybody what was never written; for tests only",
        );
    }
    let key = key::new(args.image.key.key_file.as_deref())?;
    let options = CreateOptions {
        scheme,
        kdf: key::kdf(&args.kdf)?,
        force: args.force,
        unfilled: args.unfilled,
        anchor: args.anchor.anchor.clone(),
    };
    let interrupted = signals::flag()?;
    let mut meter = Meter::new("filling", args.progress.progress);
    let made = create(&args.image.image, &key, &options, &mut |done, all| {
        meter.update(done, all);
        !interrupted.load(std::sync::atomic::Ordering::Relaxed)
    });
    meter.finish();
    let made = made?;
    let geometry = match scheme {
        SchemeConfig::DetWo(geometry) => Some(geometry),
        _ => None,
    };
    let told = Made {
        schema: "traceless.volume.create.v1",
        scheme: scheme.name(),
        uuid: uuid_text(&made.header.uuid),
        blocks: scheme.blocks(),
        block_len: scheme.block_len(),
        refresh: geometry.map(|g| g.refresh.to_string()),
        map: scheme.map().map(|(tiers, _)| if tiers == 0 { "memory" } else { "disk" }),
        image_bytes: made.header.image_len,
        generation: made.generation,
        filled: !args.unfilled,
    };
    if args.json {
        return say_json(&told);
    }
    say(&format!(
        "{}: {} volume of {} blocks of {} bytes, {} bytes in all",
        args.image.image.display(),
        told.scheme,
        told.blocks,
        told.block_len,
        told.image_bytes
    ));
    if args.anchor.anchor.is_none() {
        say("No anchor: an older copy of the whole image that is put back will not be noticed.");
    }
    if scheme.name() == "plain" {
        say("The plain scheme hides contents only: every write shows its address.");
    }
    Ok(())
}

fn scheme(args: &CreateArgs) -> Result<SchemeConfig, Failure> {
    if args.size == 0 {
        return Err(Failure::usage("--size 0: a volume must hold something"));
    }
    let blocks = args.size.div_ceil(BLOCK_LEN as u64);
    if args.scheme != SchemeName::Detwo && args.refresh.is_some() {
        return Err(Failure::usage("--refresh goes with --scheme detwo"));
    }
    match args.scheme {
        SchemeName::Detwo => detwo(args, blocks).map(SchemeConfig::DetWo),
        SchemeName::Plain => Ok(SchemeConfig::Plain { blocks, block_len: BLOCK_LEN }),
        SchemeName::Hive => random(args, blocks).map(SchemeConfig::Hive),
        SchemeName::Datalair => random(args, blocks).map(SchemeConfig::DataLair),
    }
}

fn detwo(args: &CreateArgs, blocks: u64) -> Result<Geometry, Failure> {
    let refresh = match &args.refresh {
        Some(text) => Refresh::parse(text).map_err(Failure::usage)?,
        None => Refresh::ONE,
    };
    let tiers = map_tiers(args.map, Geometry::map_tiers_for(blocks, args.map_memory));
    Geometry::new(blocks, BLOCK_LEN, refresh, tiers).map_err(Failure::usage)
}

fn random(args: &CreateArgs, blocks: u64) -> Result<random::Geometry, Failure> {
    let tiers = map_tiers(args.map, random::Geometry::map_tiers_for(blocks, args.map_memory));
    random::Geometry::new(blocks, BLOCK_LEN, tiers).map_err(Failure::usage)
}

/// Tiers of the map on the disk, if `fitting` keep the rest within the budget.
fn map_tiers(place: MapPlace, fitting: u8) -> u8 {
    match place {
        MapPlace::Auto => fitting,
        MapPlace::Memory => 0,
        MapPlace::Disk => fitting.max(1),
    }
}
