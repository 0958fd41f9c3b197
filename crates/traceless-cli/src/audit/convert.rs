//! `traceless audit convert`: what another tool recorded, as a trace file.

use super::outcome::{CLEAN, FAILED, NOT_WHAT_IT_SHOULD_BE, Outcome};
use super::source;
use crate::args::audit::ConvertArgs;
use std::fs::File;
use std::path::Path;
use traceless_audit::grouped;
use traceless_core::trace::TraceWriter;

pub fn run(args: &ConvertArgs) -> Outcome {
    match convert(args) {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

fn convert(args: &ConvertArgs) -> Result<Outcome, Outcome> {
    let failed = |error: std::io::Error| {
        Outcome::error(NOT_WHAT_IT_SHOULD_BE, &format!("{}: {error}", args.to.display()))
    };
    let is = |path: &Path| path.canonicalize().ok();
    if is(&args.to).is_some_and(|to| Some(to) == is(&args.from)) {
        return Err(Outcome::error(FAILED, "what is read cannot be written at the same time"));
    }
    let events = source::open(&args.from, &args.source)?;
    let mut writer = File::create(&args.to).and_then(TraceWriter::new).map_err(failed)?;
    for event in events {
        writer.append(event?).map_err(failed)?;
    }
    let written = writer.appended();
    writer.finish().map_err(failed)?;
    Ok(Outcome::new(CLEAN, format!("{} events\n", grouped(written))))
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;
    use crate::args::audit::FORMATS;
    use traceless_audit::Format;
    use traceless_core::trace::{Op, TraceReader};

    #[test]
    fn every_format_on_the_command_line_is_known() {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        assert_eq!(FORMATS[0], "trace");
        assert_eq!(FORMATS[1..], names);
    }

    #[test]
    fn records_of_other_tools_become_traces() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (text, trace, again) = (file("text"), file("trace"), file("again"));
        std::fs::write(&text, "1 8,0 W 8 8\n2 8,0 FF 0 0\n3 8,0 R 8 8\n").unwrap();
        for (from, to) in [(&text, &trace), (&trace, &again)] {
            let converted = outcome(&["convert", from, to]);
            assert_eq!((converted.code, converted.out.as_str()), (CLEAN, "3 events\n"));
            let ops = TraceReader::new(File::open(to).unwrap()).unwrap().map(|e| e.unwrap().op);
            assert_eq!(ops.collect::<Vec<_>>(), [Op::Write, Op::Sync, Op::Read]);
        }
        assert_eq!(outcome(&["compare", &text, &again]).code, CLEAN);
        assert_eq!(outcome(&["convert", &text, &text]).code, FAILED);
        let wrong = outcome(&["convert", &text, &trace, "--format", "redis"]);
        assert_eq!(wrong.code, NOT_WHAT_IT_SHOULD_BE);
        assert!(wrong.err.contains("text, line 1: "), "{}", wrong.err);
        // The trace that the failed conversion left behind is recognized as cut.
        assert_eq!(outcome(&["compare", &trace, &trace]).code, NOT_WHAT_IT_SHOULD_BE);
        let cut = outcome(&["convert", &trace, &again, "--prefix"]);
        assert_eq!((cut.code, cut.out.as_str()), (CLEAN, "0 events\n"));
    }
}
