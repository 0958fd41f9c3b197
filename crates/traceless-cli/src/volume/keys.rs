//! `traceless volume keys`

use super::{key, status};
use crate::args::KeysCommand;
use crate::failure::Failure;
use crate::output::{print_json, print_line};
use traceless_volume::volume::{
    add_deniable_key, add_key, change_deniable_key, change_key, remove_deniable_key, remove_key,
};

const OLD_COPIES: &str =
    "Older copies of the header, on a backup or in an older image, still open with the old key.";

pub fn run(command: &KeysCommand) -> Result<(), Failure> {
    match command {
        KeysCommand::Add(args) => {
            let old = key::existing(&args.image.key)?;
            let new = key::new(&args.new_key.key_args())?;
            let image = &args.image.image;
            let slot = if args.deniable {
                add_deniable_key(image, &old, &new)?
            } else {
                add_key(image, &old, &new, key::kdf(&args.kdf)?)?
            };
            print_line(&format!("the new key is in slot {slot}"));
        }
        KeysCommand::Change(args) => {
            let old = key::existing(&args.image.key)?;
            let new = key::new(&args.new_key.key_args())?;
            let image = &args.image.image;
            let slot = if args.deniable {
                change_deniable_key(image, &old, &new)?
            } else {
                change_key(image, &old, &new, key::kdf(&args.kdf)?)?
            };
            print_line(&format!("the new key is in slot {slot}; the old one is wiped"));
            print_line(OLD_COPIES);
        }
        KeysCommand::Remove(args) => {
            let key = key::existing(&args.image.key)?;
            let remove = if args.deniable { remove_deniable_key } else { remove_key };
            let slot = remove(&args.image.image, &key, args.slot)?;
            print_line(&format!("slot {slot} is wiped"));
            print_line(OLD_COPIES);
        }
        KeysCommand::List(args) => {
            let report = status::read(args)?;
            if args.json {
                return print_json(&serde_json::json!({
                    "schema": "traceless.volume.keys.v1",
                    "key_slots": report.key_slots,
                }));
            }
            for slot in report.key_slots {
                print_line(&format!("{} {}", slot.slot, slot.kind));
            }
        }
    }
    Ok(())
}
