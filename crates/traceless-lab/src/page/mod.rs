//! `traceless-lab report`: one page with every figure of the papers beside the papers' numbers, the
//! audits, and recorded speeds.
//!
//! `audits`: audits and their verdicts; `catalog`: `experiments/papers.toml`; `job`: commands, and
//! their results, which are kept; `supervisor`: commands end with the report; `pace`: how long the
//! rest takes; `figure`: the numbers of an experiment's report; `recorded`: numbers that are not
//! measured here; `html`: the page.

mod audits;
mod catalog;
mod figure;
mod html;
mod job;
mod pace;
mod recorded;
mod supervisor;

pub use supervisor::run as supervise;

use crate::args::ReportArgs;
use crate::report::Hardware;
use audits::AuditRow;
use catalog::{Catalog, Figure, FigureVerdict, Paper, RunnerKind};
use figure::FigureNumbers;
use html::{FigureSection, Page, PaperSection};
use job::{JobProgram, NoResult, Outcome, PageJob, Workshop};
use pace::PartTimes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use toml::Table;
use traceless_cli::failure::{FINDING, Failure};
use traceless_cli::output::{eprint_line, print_line};
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

/// Makes what is missing, and writes the page: at level full after each part.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let catalog = Catalog::read(&args.checkout)?;
    let hardware = Hardware::here();
    let figures = figure_jobs(&catalog, args)?;
    let audits = audits::jobs(&catalog, args);
    let mut jobs: Vec<&PageJob> = figures.iter().map(|figure| &figure.job).chain(&audits).collect();
    if jobs.is_empty() {
        return Err(Failure::usage("--only names no figure and no audit"));
    }
    if args.full || args.list {
        // A night that is too short leaves most of them.
        jobs.sort_by(|a, b| a.minutes.total_cmp(&b.minutes));
    }
    let folder = args.out.join("outcomes");
    if args.list {
        return list(&jobs, &folder, &hardware.cpu);
    }
    std::fs::create_dir_all(&args.out).map_err(Failure::usage)?;
    let workshop = Workshop::open(&folder, hardware.cpu.clone())?;
    let frame = Frame { args, facts: facts(args, &hardware), catalog: &catalog, audits: &audits };
    let mut outcomes = Outcomes::new();
    let (mut times, mut rest) =
        (PartTimes::default(), jobs.iter().map(|job| job.minutes).sum::<f64>());
    for (nth, job) in jobs.iter().enumerate() {
        let outcome = workshop.outcome(job, &format!("{}/{}", nth + 1, jobs.len()))?;
        rest -= job.minutes;
        let is_kept = outcome.as_ref().is_ok_and(|outcome| outcome.is_kept);
        if let Ok(outcome) = &outcome {
            times.add(job.minutes, outcome);
        }
        outcomes.insert(&job.id, outcome);
        if args.full && !is_kept && nth + 1 < jobs.len() {
            frame.write(&figures, &outcomes)?;
            eprint_line(&format!("about {} are left", times.words_for(rest)));
        }
    }
    let page = frame.write(&figures, &outcomes)?;
    print_line(&page.to_string());
    page.wrong.map_or(Ok(()), |words| Err(Failure::new(FINDING, words)))
}

/// Prints the parts, and how long the missing ones take.
fn list(jobs: &[&PageJob], folder: &Path, cpu: &str) -> Result<(), Failure> {
    let (mut rest, mut missing) = (0.0, 0);
    for job in jobs {
        let is_made = job.is_made(folder, cpu)?;
        if !is_made {
            rest += job.minutes;
            missing += 1;
        }
        let state = if is_made { "is there" } else { "-" };
        print_line(&format!("{:<40}{:>10}  {state}", job.id, pace::in_words(job.minutes)));
    }
    let all = jobs.len();
    let rest = pace::in_words(rest);
    print_line(&format!("{missing} of {all} are missing: about {rest} at level full"));
    Ok(())
}

/// What became of each part so far, by its name.
type Outcomes<'a> = BTreeMap<&'a str, Result<Outcome, NoResult>>;

/// What all pages of a report share.
struct Frame<'a> {
    args: &'a ReportArgs,
    facts: Vec<(&'static str, String)>,
    catalog: &'a Catalog,
    audits: &'a [PageJob],
}

/// A page that was written.
struct PageFile {
    path: PathBuf,
    counts: [usize; 2],
    failed: usize,
    bytes: usize,
    /// The first audit that did not find what it should.
    wrong: Option<String>,
}

impl Frame<'_> {
    fn write(&self, jobs: &[FigureJob<'_>], outcomes: &Outcomes<'_>) -> Result<PageFile, Failure> {
        let Self { args, facts, catalog, audits } = self;
        let not_made = Err(NoResult::NotMade);
        let of = |id: &str| outcomes.get(id).unwrap_or(&not_made);
        let mut papers: Vec<PaperSection<'_>> = vec![];
        for job in jobs {
            if papers.last().is_none_or(|section| section.paper.name != job.paper.name) {
                papers.push(PaperSection { paper: job.paper, figures: vec![] });
            }
            let section = papers.last_mut().expect("there is one now");
            section.figures.push(job.section(of(&job.job.id), args.full));
        }
        let made: Vec<_> = audits.iter().map(|job| (job.id.as_str(), of(&job.id))).collect();
        let audits = audits::rows(catalog, &made);
        let figures = papers.iter().flat_map(|section| &section.figures);
        let failed = figures.clone().filter(|figure| figure.numbers.is_err()).count()
            + audits.iter().filter(|row| row.verdict.is_err()).count();
        let counts = [figures.count(), audits.len()];
        let (peers_machine, peers) = recorded::peers(&args.checkout)?;
        let page = Page {
            facts: facts.clone(),
            is_full: args.full,
            is_part: !args.only.is_empty(),
            missing: [jobs.len() + self.audits.len() - outcomes.len(), jobs.len() + made.len()],
            papers,
            audits,
            peers_machine,
            peers,
            floors: recorded::floors(&args.checkout)?,
        };
        let text = page.to_html();
        let path = args.out.join(PAGE);
        write_atomically(&path, text.as_bytes())?;
        let wrong = page.audits.iter().find(|row| row.is_expected() == Some(false));
        let wrong = wrong.map(|AuditRow { target, scheme, verdict, .. }| {
            let verdict = verdict.as_deref().unwrap_or_default();
            format!("audit {target} --scheme {scheme}: {verdict}")
        });
        Ok(PageFile { path, counts, failed, bytes: text.len(), wrong })
    }
}

impl fmt::Display for PageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, counts: [figures, audits], failed, bytes, .. } = self;
        let (path, megabytes) = (path.display(), *bytes as f64 / 1e6);
        write!(
            f,
            "{path}: {figures} figures, {audits} audits, {failed} of them could not be run, "
        )?;
        write!(f, "{megabytes:.1} MB")
    }
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
            let job = figure_job(paper, figure, &path, input, args);
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
    paper: &Paper,
    figure: &Figure,
    path: &Path,
    input: Value,
    args: &ReportArgs,
) -> PageJob {
    let runner = paper.runner;
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
    let (id, minutes) = (paper.id(figure), figure.minutes);
    PageJob { id, program, words, places, input, codes: &[0], minutes }
}

impl<'a> FigureJob<'a> {
    fn section(&self, outcome: &Result<Outcome, NoResult>, is_full: bool) -> FigureSection<'a> {
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
            numbers: match outcome {
                Ok(outcome) => self.numbers(&outcome.report, is_full).map_err(NoResult::Failed),
                Err(why) => Err(why.clone()),
            },
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
