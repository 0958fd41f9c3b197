//! An answer as text.

use super::PRODUCTS;
use super::answer::{Advice, Alternative, Candidate, CommandLine, Cost, QueryCost};
use super::sizes::about;

/// Spaces before what stands under a heading.
const INDENT: &str = "  ";

/// The lines of an answer.
pub fn lines(advice: &Advice) -> Vec<String> {
    let mut lines = vec![headline(advice)];
    if let Some(cost) = &advice.cost {
        lines.extend(cost_lines(cost).into_iter().map(|line| format!("{INDENT}costs: {line}")));
    }
    for (what, text) in [("observes", advice.observes), ("learns", advice.learns)] {
        lines.extend(text.map(|text| format!("{INDENT}the adversary {what}: {text}")));
    }
    // Where nothing protects the first note is the headline.
    let notes = advice.notes.iter().skip(usize::from(!advice.protected));
    lines.extend(notes.map(|note| format!("{INDENT}note: {note}")));
    lines.extend(section("Run", advice.commands.iter().flat_map(command)));
    lines.extend(section("What comes nearest", advice.nearest.iter().flat_map(alternative)));
    lines.extend(section("Compared", table(&advice.candidates)));
    if advice.built_with.len() < PRODUCTS.len() {
        lines.push(String::new());
        lines.push(format!("This program was built with: {}", advice.built_with.join(", ")));
    }
    lines
}

fn headline(advice: &Advice) -> String {
    match (advice.product, &advice.scheme) {
        (Some(product), Some(scheme)) => {
            format!("traceless {product}, {scheme}: {}", advice.options.join(" "))
        }
        _ => advice.notes.first().cloned().unwrap_or_default(),
    }
}

/// A heading with its lines, or nothing without lines.
fn section(heading: &str, lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let lines: Vec<_> = lines.into_iter().map(|line| format!("{INDENT}{line}")).collect();
    if lines.is_empty() {
        return lines;
    }
    [String::new(), format!("{heading}:")].into_iter().chain(lines).collect()
}

fn command(command: &CommandLine) -> [String; 2] {
    [format!("# {}", command.purpose), command.text.clone()]
}

fn alternative(alternative: &Alternative) -> Vec<String> {
    let mut lines = vec![format!("{} ({})", alternative.what, alternative.see)];
    for (what, text) in [("observes", alternative.observes), ("learns", alternative.learns)] {
        lines.extend(text.map(|text| format!("{INDENT}the adversary {what}: {text}")));
    }
    let commands = alternative.commands.iter();
    lines.extend(commands.map(|command| format!("{INDENT}{}", command.text)));
    lines
}

fn cost_lines(cost: &Cost) -> Vec<String> {
    let store = format!(
        "{:.2} times the space, {}; {} of memory",
        cost.space_factor,
        about(cost.store_bytes as f64),
        about(cost.memory_bytes as f64)
    );
    let mut lines = vec![store];
    match (cost.read, cost.written) {
        (Some(read), Some(written)) => lines.push(format!(
            "{written:.1} pages written for each that leaves, {read:.1} read for each that comes"
        )),
        (None, Some(written)) => {
            lines.push(format!("{written:.2} bytes written for each of yours in long writes"));
        }
        _ => {}
    }
    if let Some(queries) = &cost.queries {
        lines.extend(query_lines(queries));
    }
    lines
}

fn query_lines(cost: &QueryCost) -> Vec<String> {
    let bytes = |bytes: u64| about(bytes as f64);
    let mut lines = vec![
        format!(
            "a query for a block of {} is {} of messages; the host reads {}",
            bytes(cost.block_len),
            bytes(cost.query_messages),
            bytes(cost.query_reads)
        ),
        format!(
            "a round after {} queries is {} of messages; the host reads and writes {}",
            cost.round_queries,
            bytes(cost.round_messages),
            bytes(cost.round_transfers)
        ),
    ];
    if let (Some(rate), Some(bytes)) = (cost.rate, cost.bytes_per_second) {
        lines.push(format!("{rate} queries a second, always: {} of messages", about(bytes)));
    }
    lines.extend(cost.dollars_per_month.map(|dollars| {
        format!("{dollars:.0} dollars a month, with files, by the prices of `traceless plan cloud`")
    }));
    lines
}

/// The candidates as a table; the last column is as wide as it is.
fn table(candidates: &[Candidate]) -> Vec<String> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let heads = ["scheme", "options", "space", "memory", "moves", ""].map(str::to_owned);
    let rows: Vec<[String; 6]> = [heads].into_iter().chain(candidates.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..6).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn row(candidate: &Candidate) -> [String; 6] {
    let cost = &candidate.cost;
    let moves = match (cost.read, cost.written, &cost.queries) {
        (Some(read), Some(written), _) => format!("{:.0} pages", read + written),
        (_, Some(written), _) => format!("{written:.2} written"),
        (.., Some(queries)) => format!("{} a query", about(queries.query_messages as f64)),
        _ => String::new(),
    };
    [
        candidate.scheme.clone(),
        candidate.options.join(" "),
        format!("{:.2}", cost.space_factor),
        about(cost.memory_bytes as f64),
        moves,
        candidate.reason.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Requirements, Watcher, advise};
    use super::*;

    #[test]
    fn a_text_without_protection_begins_with_that_and_names_what_is_near() {
        let lines = lines(&advise(&Requirements::new(Watcher::Kernel, 0)).unwrap());
        assert!(lines[0].starts_with("No product hides anything"), "{lines:?}");
        assert!(lines.contains(&"What comes nearest:".to_owned()), "{lines:?}");
    }

    #[cfg(feature = "volume")]
    #[test]
    fn a_text_has_cost_leakage_command_and_all_candidates() {
        let advice = advise(&Requirements::new(Watcher::Copies, 40 << 30)).unwrap();
        let text = lines(&advice).join("\n");
        assert!(text.starts_with("traceless volume, detwo: --map memory\n"), "{text}");
        for part in [
            "2.04 times the space",
            "81.3 MiB of memory",
            advice.learns.unwrap(),
            &advice.commands[0].text,
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        for candidate in &advice.candidates {
            assert!(text.contains(&candidate.reason), "{candidate:?} in:\n{text}");
        }
    }
}
