//! What of a program's memory was not paged.

use super::RunError;
use crate::output::print_error;
use traceless_pager::paging::{ProgramCounters, Summary, Unpaged};

/// Says how much of the programs' memory was not paged, and of which kinds it is. Fails if that is
/// more than `strict` percent of a program's memory.
pub fn check(programs: &[ProgramCounters], strict: Option<u8>) -> Result<(), RunError> {
    let measured: Vec<&Summary> =
        programs.iter().map(|one| &one.summary).filter(|one| one.unpaged.total() > 0).collect();
    if let Some(most) = measured.iter().max_by_key(|one| one.unpaged.total()) {
        print_error(&description(most));
    }
    let Some(percent) = strict else { return Ok(()) };
    if measured.len() < programs.len() {
        return Err(RunError::Unpaged(
            "--strict: how much is not paged is not known of a pager that is another process"
                .into(),
        ));
    }
    match measured.into_iter().find(|one| exceeds(one, percent)) {
        Some(one) => Err(RunError::Unpaged(format!("--strict={percent}: {}", description(one)))),
        None => Ok(()),
    }
}

/// Whether more than so many percent were not paged.
fn exceeds(program: &Summary, percent: u8) -> bool {
    let unpaged = u128::from(program.unpaged.total());
    unpaged * 100 > u128::from(percent) * (unpaged + u128::from(program.paged_bytes))
}

/// A sentence for people.
fn description(program: &Summary) -> String {
    let Unpaged { stack, static_data, program_break, other } = program.unpaged;
    let all = program.unpaged.total() + program.paged_bytes;
    format!(
        "not paged were {} of {} KiB: static data {}, the stack {}, brk {}, other mappings {}",
        kib(program.unpaged.total()),
        kib(all),
        kib(static_data),
        kib(stack),
        kib(program_break),
        kib(other),
    )
}

fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(stack: u64, paged_bytes: u64) -> ProgramCounters {
        let unpaged = Unpaged { stack, ..Unpaged::default() };
        let summary = Summary { unpaged, paged_bytes, ..Summary::default() };
        ProgramCounters { process: "1.0".into(), summary }
    }

    #[test]
    fn only_a_larger_share_than_the_stated_one_is_refused() {
        let programs = [program(5, 95), program(1, 1 << 40)];
        assert!(check(&programs, None).is_ok() && check(&programs, Some(5)).is_ok());
        let refused = check(&programs, Some(4)).unwrap_err();
        assert_eq!(refused.code(), 125);
        assert!(refused.to_string().contains("--strict=4: not paged were 1 of 1 KiB"));
        assert!(check(&[program(0, 0)], Some(100)).is_err(), "nothing is known of it");
        assert!(check(&[program(7, 0)], Some(100)).is_ok());
    }
}
