//! `traceless volume header`

use super::key;
use crate::args::HeaderCommand;
use crate::failure::Failure;
use crate::output::print_line;
use traceless_volume::volume::{Backup, backup_header, restore_header};

pub fn run(command: &HeaderCommand) -> Result<(), Failure> {
    match command {
        HeaderCommand::Backup(args) => {
            backup_header(&args.image.image, &key::existing(&args.image.key)?, &args.file)?;
            print_line(&format!(
                "{}: keep it safe: it opens with the keys of today, whatever changes later",
                args.file.display()
            ));
        }
        HeaderCommand::Restore(args) => {
            let backup = Backup::read(&args.file)?;
            restore_header(&args.image.image, &key::existing(&args.image.key)?, &backup)?;
            print_line("header and key slots are as they were when the backup was made");
        }
    }
    Ok(())
}
