//! What mount(8) and umount(8) run for volumes, also for lines of fstab:
//!
//! ```text
//! /srv/photos.img /photos traceless key-file=/etc/traceless/photos.key,nofail 0 0
//! ```
//!
//! Exit codes are as of mount(8).

use super::mount;
use crate::args::{Cli, MountArgs, Product, UnmountArgs, VolumeCommand};
use crate::failure::Failure;
use clap::Parser;
use std::ffi::{OsStr, OsString};
use traceless_volume::fuse::mount::{default_runtime, find};

/// Exit codes of mount(8).
const WRONG_USE: u8 = 1;
const NOT_MOUNTED: u8 = 32;

/// Options that name a value for an option of `traceless volume mount`.
const WITH_VALUE: [&str; 7] =
    ["key-file", "passphrase-file", "anchor", "cover", "hidden", "protect-key-file", "rate"];
/// Options that are options of `traceless volume mount` without a value.
const FLAGS: [&str; 3] = ["deniable", "overwrite-hidden", "accept-overwritten"];
/// The option that is --discard: `discard` alone is the file system's.
const DISCARD: &str = "image-discard";
/// Options about when and by which user something is mounted, and not how.
const OF_MOUNT: [&str; 13] = [
    "defaults", "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "owner", "group",
    "rw", "loop", "uhelper",
];

/// `mount.traceless IMAGE DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]`
pub fn mount(words: &[OsString]) -> Result<(), Failure> {
    let call = HelperCall::parse(words).map_err(|why| Failure::new(WRONG_USE, why))?;
    let [image, dir] = call.places.as_slice() else {
        let why = "mount.traceless IMAGE DIR [-o OPTIONS], as mount(8) calls it";
        return Err(Failure::new(WRONG_USE, why));
    };
    let args = mount_args(image, dir, &call.options)?;
    if call.is_fake || is_mounted(&args)? {
        return Ok(());
    }
    mount::mount(&args).map_err(|failure| Failure { code: NOT_MOUNTED, ..failure })
}

/// `umount.traceless DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`
pub fn unmount(words: &[OsString]) -> Result<(), Failure> {
    let call = HelperCall::parse(words).map_err(|why| Failure::new(WRONG_USE, why))?;
    let [dir] = call.places.as_slice() else {
        return Err(Failure::new(WRONG_USE, "umount.traceless DIR, as umount(8) calls it"));
    };
    mount::unmount(&UnmountArgs { dir: dir.into() })
        .map_err(|failure| Failure { code: NOT_MOUNTED, ..failure })
}

/// Whether this very image is mounted there: `mount --all` may be repeated.
fn is_mounted(args: &MountArgs) -> Result<bool, Failure> {
    let found = find(&default_runtime()?, &args.dir)?;
    let image = args
        .image
        .canonicalize()
        .map_err(|e| Failure::new(NOT_MOUNTED, format!("{}: {e}", args.image.display())))?;
    Ok(found.is_some_and(|record| record.image == image && record.daemon().is_alive()))
}

/// The command line of a helper.
#[derive(Default, Debug, PartialEq, Eq)]
struct HelperCall {
    places: Vec<OsString>,
    options: String,
    is_fake: bool,
}

impl HelperCall {
    fn parse(words: &[OsString]) -> Result<Self, String> {
        let mut call = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.to_str().unwrap_or_default();
            match text.strip_prefix('-').filter(|flags| !flags.is_empty()) {
                None => call.places.push(word.clone()),
                Some(flag @ ("o" | "N" | "t")) => {
                    let value = words.next().and_then(|value| value.to_str());
                    let value = value.ok_or_else(|| format!("-{flag} takes a text"))?;
                    if flag == "o" {
                        value.clone_into(&mut call.options);
                    }
                }
                // Sloppy, no mtab, verbose, forced, lazy, read-only if busy.
                Some(flags) if flags.bytes().all(|flag| b"sfnvlr".contains(&flag)) => {
                    call.is_fake |= flags.contains('f');
                }
                Some(_) => return Err(format!("{text}: mount(8) gives no such option")),
            }
        }
        Ok(call)
    }
}

/// The arguments of `traceless volume mount` that the options of a mount mean.
fn mount_args(image: &OsStr, dir: &OsStr, options: &str) -> Result<MountArgs, Failure> {
    let mut words: Vec<OsString> = ["traceless", "volume", "mount"].map(OsString::from).into();
    let mut further = vec![];
    for option in split(options) {
        let (name, value) = option.split_once('=').unwrap_or((&option, ""));
        if WITH_VALUE.contains(&name) {
            words.push(format!("--{name}={value}").into());
        } else if FLAGS.contains(&name) {
            words.push(format!("--{name}").into());
        } else if name == "ro" {
            words.push("--read-only".into());
        } else if name == DISCARD {
            words.push("--discard".into());
        } else if !OF_MOUNT.contains(&name) && !name.starts_with("x-") && !name.starts_with("X-") {
            further.push(option.clone());
        }
    }
    words.push(format!("--options={}", further.join(",")).into());
    words.extend(["--".into(), image.to_owned(), dir.to_owned()]);
    let parsed = Cli::try_parse_from(words).map_err(|e| Failure::new(WRONG_USE, e))?;
    match parsed.product {
        Product::Volume { command: VolumeCommand::Mount(args) } => Ok(args),
        _ => unreachable!("these are its words"),
    }
}

/// Splits at commas, but not within double quotes, which are left out.
fn split(options: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    for letter in options.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => parts.push(String::new()),
            _ => parts.last_mut().expect("there is always one").push(letter),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_line_of_fstab_becomes_arguments() {
        let call =
            words("/srv/a.img /a -n -t fuse.traceless -o rw,nosuid,x-systemd.device-timeout=5");
        let call = HelperCall::parse(&call).unwrap();
        assert_eq!(call.places, ["/srv/a.img", "/a"]);
        let options = "rw,_netdev,nofail,nosuid,key-file=/k,x-a=1,\
                       anchor=\"tpm2:0x1800016,file=/r\",commit=30";
        let args = mount_args(&call.places[0], &call.places[1], options).unwrap();
        assert_eq!((args.image, args.dir), (PathBuf::from("/srv/a.img"), PathBuf::from("/a")));
        assert_eq!(args.key.key_file, Some("/k".into()));
        assert_eq!(args.open.anchor.anchor, Some("tpm2:0x1800016,file=/r".into()));
        assert_eq!((args.options.as_str(), args.open.read_only), ("nosuid,commit=30", false));
        let args = mount_args(OsStr::new("-i"), OsStr::new("d"), "ro,passphrase-file=p").unwrap();
        assert_eq!((args.image, args.open.read_only), (PathBuf::from("-i"), true));
        assert_eq!(args.key.passphrase_file, Some("p".into()));
        assert!(!args.open.discard);
        let args = mount_args(OsStr::new("i"), OsStr::new("d"), "discard,image-discard").unwrap();
        assert_eq!((args.options.as_str(), args.open.discard), ("discard", true));
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["a b -o", "a b -x", "a b --help"] {
            assert!(HelperCall::parse(&words(text)).is_err(), "{text}");
        }
        assert!(HelperCall::parse(&words("a b -fv")).unwrap().is_fake);
        for twice in ["key-file=a,key-file=b", "ro,image-discard"] {
            assert!(mount_args(OsStr::new("a"), OsStr::new("b"), twice).is_err(), "{twice}");
        }
    }
}
