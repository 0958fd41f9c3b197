//! `traceless volume check`

use super::key;
use crate::args::CheckArgs;
use crate::failure::{FINDING, Failure};
use crate::output::{Meter, say, say_json};
use serde::Serialize;
use traceless_volume::Error;
use traceless_volume::error::Kind;
use traceless_volume::volume::{OpenOptions, Volume};

/// Damaged places that are listed; more are counted.
const LISTED_MAX: usize = 100;

#[derive(Serialize)]
struct Checked {
    schema: &'static str,
    sound: bool,
    writes: Option<u64>,
    damaged: u64,
    places: Vec<String>,
}

pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let key = key::existing(&args.image.key)?;
    let options = OpenOptions {
        read_only: true,
        exclusive: true,
        anchor: args.anchor.anchor.clone(),
        ..OpenOptions::default()
    };
    let mut meter = Meter::new("reading the map", args.progress.progress);
    let opened = Volume::open(&args.image.image, &key, &options, &mut |done, all| {
        meter.update(done, all);
    });
    meter.finish();
    let checked = match opened {
        Ok(volume) => verify(args, &volume)?,
        Err(e) if e.kind() == Kind::Finding => refused(&e),
        Err(e) => return Err(e.into()),
    };
    if args.json {
        say_json(&checked)?;
    } else {
        for place in &checked.places {
            say(&format!("damaged: {place}"));
        }
        if checked.sound {
            say("sound: everything live verifies");
        }
    }
    if checked.sound {
        return Ok(());
    }
    let places = if checked.damaged == 1 { "place is" } else { "places are" };
    Err(Failure::new(FINDING, format!("{} {places} damaged", checked.damaged)))
}

fn verify(args: &CheckArgs, volume: &Volume) -> Result<Checked, Failure> {
    let mut meter = Meter::new("verifying", args.progress.progress);
    let (mut damaged, mut places) = (0, vec![]);
    volume.verify(&mut |done, all| meter.update(done, all), &mut |place| {
        damaged += 1;
        if places.len() < LISTED_MAX {
            places.push(place.to_string());
        }
    })?;
    meter.finish();
    Ok(Checked {
        schema: "traceless.volume.check.v1",
        sound: damaged == 0,
        writes: Some(volume.writes()),
        damaged,
        places,
    })
}

/// Damage that keeps the volume from being opened at all.
fn refused(e: &Error) -> Checked {
    Checked {
        schema: "traceless.volume.check.v1",
        sound: false,
        writes: None,
        damaged: 1,
        places: vec![e.to_string()],
    }
}
