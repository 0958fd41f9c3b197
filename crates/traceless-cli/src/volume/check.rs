//! `traceless volume check`

use super::{deniable, deniable_session, key};
use crate::args::{CheckArgs, SessionArgs};
use crate::failure::{FINDING, Failure};
use crate::output::{Meter, print_json, print_line};
use serde::Serialize;
use traceless_volume::Error;
use traceless_volume::device::Device;
use traceless_volume::error::Kind;
use traceless_volume::format::UserKey;
use traceless_volume::volume::{
    DENIABLE_BLOCK_LEN, DeniableOptions, DeniableRepairReport, DeniableVolume, OpenOptions,
    RepairReport, Volume, new_anchor, repair,
};

/// Blocks of hidden volumes that one repair mends: half as many as its session has cover writes.
const HIDDEN_MAX: usize = deniable::SESSION_WRITES as usize / 2;

/// Damaged places that are listed; further ones are only counted.
const LISTED_MAX: usize = 100;

#[derive(Serialize)]
struct CheckReport {
    schema: &'static str,
    sound: bool,
    writes: Option<u64>,
    damaged: u64,
    places: Vec<String>,
    /// Whether the repair mended all damage; `None` without a repair.
    repaired: Option<bool>,
    lost: Vec<LostBlock>,
    forgotten: Vec<String>,
    new_anchor: bool,
    /// Whether damage keeps the volume closed.
    #[serde(skip)]
    closed: bool,
}

/// A block that was damaged, and now holds zeros.
#[derive(Serialize)]
struct LostBlock {
    /// The hidden volume that it is of, if it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<usize>,
    block: u64,
    at: u64,
    bytes: u64,
}

pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let key = key::existing(&args.image.key)?;
    let mut checked = check(args, &key)?;
    // With a session for what is damaged alone a deniable image would show hidden volumes.
    let mended = match (args.repair, args.deniable) {
        (true, true) => mend_deniable(args, &key, &mut checked),
        (true, false) if !checked.sound => mend(args, &key, &mut checked),
        _ => Ok(()),
    };
    if args.json {
        print_json(&checked)?;
    } else {
        print_report(&checked);
    }
    // What was lost before a repair failed is lost.
    mended?;
    if checked.sound {
        return Ok(());
    }
    let places = match checked.damaged {
        1 => "1 place is".to_owned(),
        n => format!("{n} places are"),
    };
    Err(Failure::new(FINDING, format!("{places} damaged; {}", outcome(&checked))))
}

impl LostBlock {
    /// A block of the volume that the image has, or of a hidden one.
    fn new(hidden: Option<usize>, block: u64, bytes: u64) -> Self {
        Self { hidden, block, at: block * bytes, bytes }
    }
}

fn outcome(checked: &CheckReport) -> &'static str {
    match checked.repaired {
        Some(true) => "repaired",
        Some(false) => "not all of it could be repaired",
        None if checked.closed => {
            "this keeps the volume closed: restore the image, or open it without what is damaged, \
             with --repair --accept-old-blocks"
        }
        None if checked.writes.is_none() => "nothing here can repair that",
        None => "nothing was repaired: that takes --repair",
    }
}

fn print_report(checked: &CheckReport) {
    for place in &checked.places {
        print_line(&format!("damaged: {place}"));
    }
    for place in &checked.forgotten {
        print_line(&format!(
            "forgotten: the write in {place}; its block may read as it was earlier"
        ));
    }
    for LostBlock { hidden, block, at, bytes } in &checked.lost {
        let of = hidden.map_or_else(String::new, |number| format!(" of hidden-{number}"));
        print_line(&format!(
            "lost: block {block}{of}, bytes {at} to {}; it is zeros now",
            at + bytes - 1
        ));
    }
    if checked.sound {
        print_line("sound: everything live verifies");
    }
    if checked.new_anchor {
        print_line("the anchor is new: whatever was done to the image before, it does not tell");
    }
}

fn options(args: &CheckArgs) -> OpenOptions {
    // An anchor that is to be made anew is not compared with the volume.
    let anchor = args.anchor.anchor.clone().filter(|_| !args.new_anchor);
    OpenOptions { anchor, ..OpenOptions::default() }
}

fn check(args: &CheckArgs, key: &UserKey) -> Result<CheckReport, Failure> {
    let options = OpenOptions { read_only: true, exclusive: true, ..options(args) };
    let mut meter = Meter::new("reading the map", args.progress.progress);
    let mut progress = |done, all| meter.update(done, all);
    let image = &args.image.image;
    let opened = if args.deniable {
        deniable_session::open_to_check(image, key, options, &mut progress).map(Checked::Deniable)
    } else {
        Volume::open(image, key, &options, &mut progress).map(Checked::Ordinary)
    };
    meter.finish();
    let opened = match opened {
        Ok(opened) => opened,
        Err(e) if e.kind() == Kind::Finding => return Ok(refused(&e)),
        Err(e) => return Err(e.into()),
    };
    let volume = opened.volume();
    let mut checked = verify(args, volume)?;
    if let (true, true, Some(path)) = (checked.sound, args.new_anchor, &args.anchor.anchor) {
        new_anchor(path, volume)?;
        checked.new_anchor = true;
    }
    Ok(checked)
}

/// A volume that is open to be checked.
enum Checked {
    Ordinary(Volume),
    /// A public volume; what is verified with it are the hidden ones that are open.
    Deniable(DeniableVolume),
}

impl Checked {
    fn volume(&self) -> &Volume {
        match self {
            Self::Ordinary(volume) => volume,
            Self::Deniable(opened) => opened.volume(),
        }
    }
}

fn verify(args: &CheckArgs, volume: &Volume) -> Result<CheckReport, Failure> {
    let mut meter = Meter::new("verifying", args.progress.progress);
    let superblocks = volume.damaged_superblocks()?;
    let mut damaged = superblocks.len() as u64;
    let mut places: Vec<_> = superblocks
        .into_iter()
        .map(|name| format!("{name}; the other one has the same, and an opening mends it"))
        .collect();
    volume.verify(&mut |done, all| meter.update(done, all), &mut |place| {
        damaged += 1;
        if places.len() < LISTED_MAX {
            places.push(place.to_string());
        }
    })?;
    meter.finish();
    Ok(CheckReport { writes: Some(volume.writes()), ..found(damaged, places) })
}

/// The report for damage that keeps the volume from being opened.
fn refused(e: &Error) -> CheckReport {
    CheckReport { closed: e.keeps_closed(), ..found(1, vec![e.to_string()]) }
}

fn found(damaged: u64, places: Vec<String>) -> CheckReport {
    CheckReport {
        schema: "traceless.volume.check.v1",
        sound: damaged == 0,
        writes: None,
        damaged,
        places,
        repaired: None,
        lost: vec![],
        forgotten: vec![],
        new_anchor: false,
        closed: false,
    }
}

/// Repairs the damage, and checks the volume again.
fn mend(args: &CheckArgs, key: &UserKey, checked: &mut CheckReport) -> Result<(), Failure> {
    if checked.writes.is_none() && !(checked.closed && args.accept_old_blocks) {
        return Ok(());
    }
    let options = options(args);
    let mut meter = Meter::new("repairing", args.progress.progress);
    let done =
        repair(&args.image.image, key, &options, args.accept_old_blocks, &mut |done, all| {
            meter.update(done, all);
        });
    meter.finish();
    let RepairReport { zeroed, forgotten } = done?;
    let options = OpenOptions { read_only: true, exclusive: true, ..options };
    let volume = Volume::open(&args.image.image, key, &options, &mut |_, _| {})?;
    let bytes = volume.header().scheme.block_len() as u64;
    checked.lost = zeroed.into_iter().map(|block| LostBlock::new(None, block, bytes)).collect();
    checked.forgotten = forgotten.iter().map(ToString::to_string).collect();
    let after = verify(args, &volume)?;
    (checked.repaired, checked.writes) = (Some(after.sound), after.writes);
    Ok(())
}

/// Repairs a deniable image in a session of its own, and checks it again. The disk sees a write for
/// each block of the public volume that is mended, and cover writes.
fn mend_deniable(
    args: &CheckArgs,
    key: &UserKey,
    checked: &mut CheckReport,
) -> Result<(), Failure> {
    let image = &args.image.image;
    let options = DeniableOptions {
        open: options(args),
        overwrite_hidden: args.overwrite_hidden,
        accept_overwritten: args.accept_old_blocks,
    };
    let mut meter = Meter::new("repairing", args.progress.progress);
    let mut repaired = DeniableRepairReport::default();
    let changed = deniable::change(image, key, (&options, &SessionArgs::default()), |opened| {
        if opened.volume().read_only() {
            return Err(Failure::usage(
                "this key opens no hidden volume, so a repair could overwrite one: give the key of \
                 the most secret one, or --overwrite-hidden",
            ));
        }
        repaired = opened.repair(HIDDEN_MAX, &mut |done, all| meter.update(done, all))?;
        Ok(())
    });
    meter.finish();
    let bytes = DENIABLE_BLOCK_LEN as u64;
    let lost = |hidden, blocks: Vec<u64>| {
        blocks.into_iter().map(move |block| LostBlock::new(hidden, block, bytes))
    };
    checked.lost = lost(None, repaired.public).collect();
    for (number, blocks) in (1..).zip(repaired.hidden) {
        checked.lost.extend(lost(Some(number), blocks));
    }
    changed?;
    let open = OpenOptions { read_only: true, exclusive: true, ..options.open };
    let opened = deniable_session::open_to_check(image, key, open, &mut |_, _| {})?;
    let after = verify(args, opened.volume())?;
    (checked.repaired, checked.writes) = (Some(after.sound), after.writes);
    Ok(())
}
