//! `traceless volume create`

use super::key;
use crate::args::{CadenceName, CipherName, CreateArgs, MapKind, MapPlace, SchemeName, SqArgs};
use crate::failure::Failure;
use crate::output::{Meter, say, say_json};
use crate::signals;
use serde::Serialize;
use traceless::build::SchemeConfig;
use traceless::clock::Monotonic;
use traceless::scheme::detwo::{DetWoGeometry, MapEntries, Refresh};
use traceless::scheme::{random, sq};
use traceless::seal::Cipher;
use traceless_volume::volume::{CreateOptions, create, uuid_text};

/// Bytes of a block.
const BLOCK_LEN: usize = 4096;

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
        crate::output::complain(
            "--unfilled: the image's holes tell everybody what was never written; for tests only",
        );
    }
    let key = key::new(args.image.key.key_file.as_deref())?;
    let options = CreateOptions {
        scheme,
        cipher: cipher(args.cipher),
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
    let facts = scheme.facts(0);
    let told = CreateReport {
        schema: "traceless.volume.create.v1",
        scheme: scheme.name(),
        cipher: made.header.cipher.name(),
        uuid: uuid_text(&made.header.uuid),
        blocks: scheme.blocks(),
        block_len: scheme.block_len(),
        refresh: facts.refresh,
        map: facts.map,
        map_entries: facts.map_entries,
        image_bytes: made.header.image_len,
        generation: made.generation,
        filled: !args.unfilled,
    };
    if args.json {
        return say_json(&told);
    }
    say(&format!(
        "{}: {} volume of {} blocks of {} bytes, {} bytes in all, sealed with {}",
        args.image.image.display(),
        told.scheme,
        told.blocks,
        told.block_len,
        told.image_bytes,
        told.cipher
    ));
    if args.anchor.anchor.is_none() {
        say("No anchor: an older copy of the whole image that is put back will not be noticed.");
    }
    if scheme.name() == "plain" {
        say("The plain scheme hides contents only: every write shows its address.");
    }
    Ok(())
}

/// The cipher of this name; for auto, the fastest here for a block.
pub fn cipher(name: CipherName) -> Cipher {
    match name {
        CipherName::Auto => Cipher::fastest(BLOCK_LEN, &Monotonic::start()),
        CipherName::Aes256Gcm => Cipher::AesGcm,
        CipherName::Aegis256 => Cipher::Aegis256,
        CipherName::Aegis256X2 => Cipher::Aegis256X2,
        CipherName::Aegis256X4 => Cipher::Aegis256X4,
    }
}

/// The scheme that the arguments ask for.
pub fn scheme(args: &CreateArgs) -> Result<SchemeConfig, Failure> {
    if args.size == 0 {
        return Err(Failure::usage("--size 0: a volume must hold something"));
    }
    let blocks = args.size.div_ceil(BLOCK_LEN as u64);
    let has_refresh = matches!(args.scheme, SchemeName::Detwo | SchemeName::Sq);
    if !has_refresh && args.refresh.is_some() {
        return Err(Failure::usage("--refresh goes with --scheme detwo or sq"));
    }
    if args.scheme != SchemeName::Sq {
        refuse_flags_of_sq(&args.sq)?;
    }
    if args.scheme != SchemeName::Detwo && args.map_entries.is_some() {
        return Err(Failure::usage("--map-entries goes with --scheme detwo"));
    }
    match args.scheme {
        SchemeName::Detwo => detwo(args, blocks).map(SchemeConfig::DetWo),
        SchemeName::Sq => sq(args, blocks).map(SchemeConfig::Sq),
        SchemeName::Plain => Ok(SchemeConfig::Plain { blocks, block_len: BLOCK_LEN }),
        SchemeName::Hive => random(args, blocks).map(SchemeConfig::Hive),
        SchemeName::Datalair => random(args, blocks).map(SchemeConfig::DataLair),
    }
}

fn detwo(args: &CreateArgs, blocks: u64) -> Result<DetWoGeometry, Failure> {
    let refresh = match &args.refresh {
        Some(text) => Refresh::parse(text).map_err(Failure::usage)?,
        None => Refresh::ONE,
    };
    let tiers = map_tiers(args.map, DetWoGeometry::map_tiers_for(blocks, args.map_memory));
    let entries = match args.map_entries {
        None | Some(MapKind::Counts) => MapEntries::Counts,
        Some(MapKind::Pointers) => MapEntries::Pointers,
    };
    DetWoGeometry::new(blocks, BLOCK_LEN, refresh, tiers)
        .and_then(|g| g.with_map_entries(entries))
        .map_err(Failure::usage)
}

fn random(args: &CreateArgs, blocks: u64) -> Result<random::RandomGeometry, Failure> {
    let tiers = map_tiers(args.map, random::RandomGeometry::map_tiers_for(blocks, args.map_memory));
    random::RandomGeometry::new(blocks, BLOCK_LEN, tiers).map_err(Failure::usage)
}

/// Tiers of the map on the disk, if `fitting` keep the rest within the budget.
fn map_tiers(place: MapPlace, fitting: u8) -> u8 {
    match place {
        MapPlace::Auto => fitting,
        MapPlace::Memory => 0,
        MapPlace::Disk => fitting.max(1),
    }
}

fn sq(args: &CreateArgs, blocks: u64) -> Result<sq::SqGeometry, Failure> {
    let flags = &args.sq;
    let cadence = match flags.cadence {
        CadenceName::Strict => sq::Cadence::Strict,
        CadenceName::Paper if flags.insecure => sq::Cadence::Paper,
        CadenceName::Paper => {
            return Err(Failure::usage(
                "--cadence paper lets flushes tell which writes are near each other: say \
                 --insecure to have it all the same",
            ));
        }
    };
    if flags.insecure && cadence == sq::Cadence::Strict {
        return Err(Failure::usage("--insecure goes with --cadence paper"));
    }
    let refresh = args.refresh.as_deref().map(Refresh::parse).transpose();
    let refresh = refresh.map_err(Failure::usage)?.map(|k| f64::from(k.p()) / f64::from(k.q()));
    let wishes = |map_on_disk| sq::Wishes {
        bucket: flags.bucket,
        fanout: flags.fanout,
        refresh,
        map_on_disk,
    };
    let shape = |on_disk| sq::SqGeometry::new(blocks, BLOCK_LEN, wishes(on_disk));
    let on_disk = cadence == sq::Cadence::Paper
        || match args.map {
            MapPlace::Auto => shape(false).map_err(Failure::usage)?.map_memory() > args.map_memory,
            MapPlace::Memory => false,
            MapPlace::Disk => true,
        };
    let shape = shape(on_disk).map_err(Failure::usage)?;
    let geometry = sq::SqGeometry { cadence, amortized: flags.amortized, ..shape };
    geometry.check().map_err(Failure::usage)?;
    Ok(geometry)
}

fn refuse_flags_of_sq(flags: &SqArgs) -> Result<(), Failure> {
    let given = [
        ("--fanout", flags.fanout.is_some()),
        ("--bucket", flags.bucket.is_some()),
        ("--cadence", flags.cadence != CadenceName::Strict),
        ("--insecure", flags.insecure),
        ("--amortized", flags.amortized),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Failure::usage(format!("{flag} goes with --scheme sq"))),
        None => Ok(()),
    }
}
