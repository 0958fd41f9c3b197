//! Questions on a terminal, for what the command line does not say.

use crate::args::{
    AdviseArgs, Watcher, WritePattern, YesNo, parse_dollars, parse_factor, parse_size,
};
use clap::ValueEnum;
use std::io::{self, BufRead, Write};

/// Puts questions for what is missing, if the watcher or the size is. Only these two must be
/// answered.
pub fn complete(args: &mut AdviseArgs, input: impl BufRead, output: impl Write) -> io::Result<()> {
    let is_protectable = |args: &AdviseArgs| {
        let hide_reads = args.hide_reads == Some(YesNo::Yes);
        let watcher = args.watcher.map(traceless_advise::Watcher::from);
        watcher.is_some_and(|watcher| watcher.has_protection(hide_reads))
    };
    if args.watcher.is_some() && (args.size.is_some() || !is_protectable(args)) {
        return Ok(());
    }
    let mut dialog = Dialog { input, output };
    if args.watcher.is_none() {
        dialog.list::<Watcher>()?;
        args.watcher = Some(dialog.insist("Which adversary is it to be hidden from?", named)?);
    }
    let watcher = args.watcher;
    if args.hide_reads.is_none() && matches!(watcher, Some(Watcher::DeviceWrites | Watcher::Swap)) {
        args.hide_reads =
            dialog.ask("Must reads be hidden, too (yes, no) [no]?", named::<YesNo>)?;
    }
    // Where no product protects nothing else matters.
    if !is_protectable(args) {
        return Ok(());
    }
    if args.size.is_none() {
        args.size = Some(dialog.insist("How much is to be protected, as 10G?", parse_size)?);
    }
    if args.memory.is_none() {
        args.memory = dialog.ask("How much memory may it take, as 64M [no limit]?", parse_size)?;
    }
    if args.space_factor.is_none() {
        let question = "How many times the space may it take, as 2.5 [no limit]?";
        args.space_factor = dialog.ask(question, parse_factor)?;
    }
    match watcher {
        Some(Watcher::Copies | Watcher::DeviceWrites) => ask_about_writes(args, &mut dialog),
        Some(Watcher::Cloud) => ask_about_blocks(args, &mut dialog),
        _ => Ok(()),
    }
}

fn ask_about_writes<R: BufRead, W: Write>(
    args: &mut AdviseArgs,
    dialog: &mut Dialog<R, W>,
) -> io::Result<()> {
    if args.pattern.is_none() {
        dialog.list::<WritePattern>()?;
        args.pattern = dialog.ask("How is it written [runs]?", named)?;
    }
    if args.writes.is_none() {
        args.writes = dialog.ask("How many of 100 requests write [unknown]?", percent)?;
    }
    Ok(())
}

fn ask_about_blocks<R: BufRead, W: Write>(
    args: &mut AdviseArgs,
    dialog: &mut Dialog<R, W>,
) -> io::Result<()> {
    if args.block_len.is_none() {
        args.block_len = dialog.ask("How long is a block, as 4K [what fits]?", parse_size)?;
    }
    if args.rate.is_none() && args.latency.is_none() {
        let question = "Blocks a second at a constant rate, which hides times [as they come]?";
        args.rate = dialog.ask(question, count)?;
    }
    if args.dollars.is_none() {
        args.dollars =
            dialog.ask("How many dollars a month may it cost [no limit]?", parse_dollars)?;
    }
    Ok(())
}

/// A terminal, or what stands for one.
struct Dialog<R, W> {
    input: R,
    output: W,
}

impl<R: BufRead, W: Write> Dialog<R, W> {
    /// Prints the values to choose from, with their help.
    fn list<T: ValueEnum>(&mut self) -> io::Result<()> {
        for value in T::value_variants().iter().filter_map(ValueEnum::to_possible_value) {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            writeln!(self.output, "  {:<14} {help}", value.get_name())?;
        }
        Ok(())
    }

    /// The answer to a question, which is repeated until the answer can be read; `None` for an
    /// empty one.
    fn ask<T>(
        &mut self,
        question: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> io::Result<Option<T>> {
        loop {
            write!(self.output, "{question} ")?;
            self.output.flush()?;
            let mut line = String::new();
            if self.input.read_line(&mut line)? == 0 {
                let what = "the questions were not answered; give options instead (--help)";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            match line.trim() {
                "" => return Ok(None),
                answer => match read(answer) {
                    Ok(value) => return Ok(Some(value)),
                    Err(why) => writeln!(self.output, "  {why}")?,
                },
            }
        }
    }

    /// The same, for a question that must be answered.
    fn insist<T>(
        &mut self,
        question: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> io::Result<T> {
        loop {
            if let Some(value) = self.ask(question, &read)? {
                return Ok(value);
            }
        }
    }
}

fn named<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, true).map_err(|_| {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
        format!("one of: {}", names.join(", "))
    })
}

fn percent(text: &str) -> Result<u8, String> {
    let number = text.trim_end_matches('%').trim().parse().ok().filter(|&number| number <= 100);
    number.ok_or_else(|| "a number from 0 to 100".to_owned())
}

fn count(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| "a number of 1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::testing::args;
    use super::*;

    /// The arguments after an interview with these answers, and how many questions there were.
    fn interview(options: &str, answers: &str) -> io::Result<(AdviseArgs, usize)> {
        let (mut args, mut output) = (args(options), Vec::new());
        complete(&mut args, answers.as_bytes(), &mut output)?;
        let questions = String::from_utf8(output).unwrap().matches("? ").count();
        Ok((args, questions))
    }

    #[test]
    fn only_missing_options_are_questions() {
        let (args, questions) = interview("--watcher copies --size 1G", "").unwrap();
        assert_eq!((args.memory, questions), (None, 0));
        let (args, questions) = interview("", "copies\n10G\n64M\n2.5\nscattered\n30 %\n").unwrap();
        assert_eq!((args.watcher, args.size), (Some(Watcher::Copies), Some(10 << 30)));
        assert_eq!((args.memory, args.space_factor), (Some(64 << 20), Some(2.5)));
        assert_eq!((args.pattern, args.writes), (Some(WritePattern::Scattered), Some(30)));
        assert_eq!(questions, 6);
        let (args, questions) = interview("--memory 1M --watcher swap", "yes\n1G\n\n").unwrap();
        assert_eq!((args.hide_reads, args.size), (Some(YesNo::Yes), Some(1 << 30)));
        assert_eq!((args.memory, args.space_factor, questions), (Some(1 << 20), None, 3));
        let (args, questions) = interview("--size 1G", "swap\n\n1M\n3\n").unwrap();
        assert_eq!((args.hide_reads, args.memory, questions), (None, Some(1 << 20), 4));
        let (args, _) = interview("--rate 5", "cloud\n1G\n\n\n4K\n150\n").unwrap();
        assert_eq!((args.block_len, args.rate, args.dollars), (Some(4096), Some(5), Some(150.0)));
    }

    #[test]
    fn a_question_is_repeated_until_its_answer_can_be_read() {
        let (args, questions) =
            interview("", "\nthief\ncopies\n\n-1\n1G\nmuch\n\n0.5\n\n\n101\n\n").unwrap();
        assert_eq!((args.watcher, args.size), (Some(Watcher::Copies), Some(1 << 30)));
        assert_eq!((args.memory, args.writes, questions), (None, None, 13));
        let cut = interview("", "copies\n").unwrap_err();
        assert!(cut.to_string().contains("--help"), "{cut}");
    }

    #[test]
    fn where_no_product_protects_there_are_no_further_questions() {
        for (options, answers) in
            [("", "kernel\n"), ("", "device\n"), ("--watcher device-writes", "yes\n")]
        {
            let (args, questions) = interview(options, answers).unwrap();
            assert_eq!((args.size, questions), (None, 1));
        }
    }
}
