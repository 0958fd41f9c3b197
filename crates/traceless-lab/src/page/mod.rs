//! `traceless-lab report`: one page with every figure of the papers beside the papers' numbers, the
//! audits, and recorded speeds.
//!
//! `audits`: audits and their verdicts; `catalog`: `experiments/papers.toml`; `job`: commands, and
//! their results, which are kept; `figure`: the numbers of an experiment's report; `recorded`:
//! numbers that are not measured here; `html`: the page.

mod audits;
mod catalog;
mod figure;
mod html;
mod job;
mod recorded;

use crate::args::ReportArgs;
use crate::report::Hardware;
use audits::AuditRow;
use catalog::{Catalog, Figure, FigureVerdict, Paper, RunnerKind};
use figure::FigureNumbers;
use html::{FigureSection, Page, PaperSection};
use job::{JobProgram, Outcome, PageJob, Workshop};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use toml::Table;
use traceless_cli::failure::{FINDING, Failure};
use traceless_cli::output::print_line;
use traceless_sim::experiment::Result;
use traceless_sim::experiment::results::write_atomically;
use traceless_sim::experiment::toml_file::{parse_file, read_table, sibling};
use traceless_sim::parallel::cores;

/// The name of the page in its folder.
const PAGE: &str = "report.html";
/// What the suite of volumes takes less of at level quick.
const QUICK_SUITE: &str = "files of 512 MiB on the model and 2 GiB on a disk, fewer rounds";

/// A figure and the command that makes it.
struct FigureJob<'a> {
    figure: &'a Figure,
    paper: &'a Paper,
    table: Table,
    job: PageJob,
}

/// Makes what is missing, and writes the page.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let catalog = Catalog::read(&args.checkout)?;
    let hardware = Hardware::here();
    std::fs::create_dir_all(&args.out).map_err(Failure::usage)?;
    let figures = figure_jobs(&catalog, args)?;
    let audits = audits::jobs(&catalog, args);
    let all = figures.len() + audits.len();
    if all == 0 {
        return Err(Failure::usage("--only names no figure and no audit"));
    }
    let workshop = Workshop::open(&args.out.join("outcomes"), hardware.cpu.clone())?;
    let mut papers: Vec<PaperSection<'_>> = vec![];
    for (nth, figure) in figures.iter().enumerate() {
        let outcome = workshop.outcome(&figure.job, &format!("{}/{all}", nth + 1))?;
        if papers.last().is_none_or(|section| section.paper.name != figure.paper.name) {
            papers.push(PaperSection { paper: figure.paper, figures: vec![] });
        }
        let section = papers.last_mut().expect("there is one now");
        section.figures.push(figure.section(outcome, args.full));
    }
    let mut outcomes = vec![];
    for (nth, job) in audits.iter().enumerate() {
        let place = format!("{}/{all}", figures.len() + nth + 1);
        outcomes.push((job.id.as_str(), workshop.outcome(job, &place)?));
    }
    let rows = audits::rows(&catalog, &outcomes);
    write_page(args, &hardware, papers, rows)
}

fn write_page(
    args: &ReportArgs,
    hardware: &Hardware,
    papers: Vec<PaperSection<'_>>,
    audits: Vec<AuditRow>,
) -> Result<(), Failure> {
    let (peers_machine, peers) = recorded::peers(&args.checkout)?;
    let figures = papers.iter().flat_map(|section| &section.figures);
    let failed = figures.clone().filter(|figure| figure.numbers.is_err()).count()
        + audits.iter().filter(|row| row.verdict.is_err()).count();
    let counted = format!("{} figures, {} audits", figures.count(), audits.len());
    let page = Page {
        facts: facts(args, hardware),
        is_full: args.full,
        is_part: !args.only.is_empty(),
        papers,
        audits,
        peers_machine,
        peers,
        floors: recorded::floors(&args.checkout)?,
    };
    let text = page.to_html();
    let path = args.out.join(PAGE);
    write_atomically(&path, text.as_bytes())?;
    let size = text.len() as f64 / 1e6;
    print_line(&format!(
        "{}: {counted}, {failed} of them could not be run, {size:.1} MB",
        path.display()
    ));
    let wrong = page.audits.iter().find(|row| row.is_expected() == Some(false));
    wrong.map_or(Ok(()), |row| {
        let AuditRow { target, scheme, verdict, .. } = row;
        let verdict = verdict.as_deref().unwrap_or_default();
        Err(Failure::new(FINDING, format!("audit {target} --scheme {scheme}: {verdict}")))
    })
}

/// Whether `--only` selects a figure or an audit.
fn wants(args: &ReportArgs, id: &str) -> bool {
    args.only.is_empty() || args.only.iter().any(|part| id.contains(part))
}

fn figure_jobs<'a>(catalog: &'a Catalog, args: &ReportArgs) -> Result<Vec<FigureJob<'a>>> {
    let mut jobs = vec![];
    for paper in &catalog.papers {
        for figure in paper.figures.iter().filter(|figure| wants(args, &paper.id(figure))) {
            let path = paper.path(&args.checkout, figure);
            let table = read_table(&path)?;
            let input = input(&path, &table)?;
            let job = figure_job(paper.runner, paper.id(figure), &path, input, args);
            jobs.push(FigureJob { figure, paper, table, job });
        }
    }
    Ok(jobs)
}

/// All that is in the files of an experiment.
fn input(path: &Path, table: &Table) -> Result<Value> {
    let machine = match table.get("machine").and_then(toml::Value::as_str) {
        Some(name) => Some(parse_file(&sibling(path, Path::new(name)))?),
        None => None,
    };
    Ok(json!({ "experiment": table, "machine": machine }))
}

fn figure_job(
    runner: RunnerKind,
    id: String,
    path: &Path,
    input: Value,
    args: &ReportArgs,
) -> PageJob {
    let level = if args.full { "full" } else { "quick" };
    let file = path.display().to_string();
    let results = args.out.join("results").display().to_string();
    let jobs = args.jobs.map_or_else(cores, |jobs| jobs as usize).to_string();
    let with_level = ["--level", level];
    let (program, mut words, places) = match runner {
        RunnerKind::Simulator => (
            JobProgram::Traceless,
            [&["sim", "sweep"][..], &with_level].concat(),
            vec![file, "--jobs".to_owned(), jobs, "--out".to_owned(), results],
        ),
        RunnerKind::Pager | RunnerKind::Cloud => {
            let bench = if runner == RunnerKind::Pager { "pager" } else { "cloud" };
            let places = vec!["--experiment".to_owned(), file, "--out".to_owned(), results];
            (JobProgram::Lab, [&["bench", bench][..], &with_level].concat(), places)
        }
        RunnerKind::Volume => {
            let quick: &[&str] = if args.full { &[] } else { &["--quick"] };
            let dir = args.out.display().to_string();
            let places = vec!["--experiment".to_owned(), file, "--dir".to_owned(), dir];
            (JobProgram::Lab, [&["bench", "volume"][..], quick].concat(), places)
        }
    };
    words.push("--json");
    let words = words.into_iter().map(str::to_owned).collect();
    PageJob { id, program, words, places, input, codes: &[0] }
}

impl<'a> FigureJob<'a> {
    fn section(&self, outcome: Result<Outcome, String>, is_full: bool) -> FigureSection<'a> {
        let seconds = outcome.as_ref().map_or(0.0, |outcome| outcome.seconds);
        let words = |key: &str| match self.table.get(key) {
            Some(toml::Value::String(text)) => vec![text.clone()],
            Some(toml::Value::Array(lines)) => {
                lines.iter().filter_map(|line| Some(line.as_str()?.to_owned())).collect()
            }
            _ => vec![],
        };
        let place = &self.figure.place;
        let title = words("title").concat();
        let title = title.strip_prefix(place.as_str()).unwrap_or(&title);
        // The experiment's own words say which of several it is.
        let own = words("place").concat();
        let is_ours = self.figure.verdict == FigureVerdict::Ours || own.is_empty();
        FigureSection {
            place: if is_ours { place.clone() } else { own },
            id: self.paper.id(self.figure),
            figure: self.figure,
            title: title.trim_start_matches(": ").to_owned(),
            remarks: words("remarks"),
            command: self.job.line(),
            seconds,
            numbers: outcome.and_then(|outcome| self.numbers(&outcome.report, is_full)),
        }
    }

    fn numbers(&self, report: &Value, is_full: bool) -> Result<FigureNumbers, String> {
        match self.paper.runner {
            RunnerKind::Simulator => FigureNumbers::of_experiment(&report["experiments"][0]),
            RunnerKind::Pager | RunnerKind::Cloud => FigureNumbers::of_experiment(report),
            RunnerKind::Volume => {
                let shortfall = (!is_full).then_some(QUICK_SUITE);
                FigureNumbers::of_suite(report, &self.figure.place, shortfall)
            }
        }
    }
}

/// What the numbers depend on besides the experiments.
fn facts(args: &ReportArgs, hardware: &Hardware) -> Vec<(&'static str, String)> {
    let Hardware { cpu, cores, kernel } = hardware;
    let mut facts = vec![
        ("level", if args.full { "full" } else { "quick" }.to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("processor", cpu.clone()),
        ("cores", cores.to_string()),
        ("kernel", kernel.clone()),
    ];
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short=12", "HEAD"]).current_dir(&args.checkout);
    if let Some(commit) = line_of(&mut git) {
        facts.insert(2, ("commit", commit));
    }
    if let Some(day) = line_of(Command::new("date").args(["--utc", "+%Y-%m-%d"])) {
        facts.insert(0, ("made", day));
    }
    if let Some(gib) = memory_gib() {
        facts.push(("memory", format!("{gib:.0} GiB")));
    }
    facts.push(("charts", "Observable Plot 0.6.17, d3 7.9.2".to_owned()));
    facts
}

/// What a command prints, if it succeeds.
fn line_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn memory_gib() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / f64::from(1 << 20))
}
