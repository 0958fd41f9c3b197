//! Every command goes out as soon as no constraint forbids it, and not before: the memory is
//! compared with one that checks each cycle against all commands so far.

use traceless::rng::{Rng, SeededRng};
use traceless_sim::backend::Answer;
use traceless_sim::dram::{
    AddressMap, Apart, Checker, Command, CommandRecord, Config, Geometry, Memory, Scheduler,
    Timing, WriteDrain, first_breach,
};
use traceless_sim::workload::{LINE_LEN, Op};

const CYCLE: u64 = 4;

/// Selects one of the times of a memory.
type Field = fn(&mut Timing) -> &mut u64;

/// All times, except the times between groups of banks.
const FIELDS: [(&str, Field); 16] = [
    ("rcd", |t| &mut t.rcd),
    ("rp", |t| &mut t.rp),
    ("cas", |t| &mut t.cas),
    ("rc", |t| &mut t.rc),
    ("ras", |t| &mut t.ras),
    ("rrd", |t| &mut t.rrd),
    ("faw", |t| &mut t.faw),
    ("wr", |t| &mut t.wr),
    ("wtr", |t| &mut t.wtr),
    ("rtp", |t| &mut t.rtp),
    ("ccd", |t| &mut t.ccd),
    ("cwd", |t| &mut t.cwd),
    ("rtrs", |t| &mut t.rtrs),
    ("data", |t| &mut t.data),
    ("refi", |t| &mut t.refi),
    ("rfc", |t| &mut t.rfc),
];

fn config(ranks: u32, scheduler: Scheduler) -> Config {
    Config {
        geometry: Geometry { channels: 1, ranks, banks: 8, groups: 1, rows: 16, columns: 8 },
        map: AddressMap::COLUMNS_LAST,
        // Refreshes come often, so that much happens around them. Times that follow from other
        // times in real memories bind here, too.
        timing: Timing { refi: 150, rfc: 20, ccd: 5, rc: 41, ..Timing::DDR3_1600_1GB },
        drain: WriteDrain { capacity: 24, high: 12, low: 5 },
        scheduler,
        ..Config::ONE_CHANNEL
    }
}

/// A configuration with four groups of banks, with shorter times between them.
fn grouped(ranks: u32, scheduler: Scheduler) -> Config {
    let config = config(ranks, scheduler);
    let apart = Some(Apart { rrd: 4, wtr: 3, ccd: 5 });
    Config {
        geometry: Geometry { groups: 4, banks: 16, ..config.geometry },
        timing: Timing { rrd: 6, wtr: 9, ccd: 7, faw: 21, apart, ..config.timing },
        ..config
    }
}

/// Requests: time, operation and byte.
fn requests(config: &Config, seed: u64) -> Vec<(u64, Op, u64)> {
    let mut rng = SeededRng::new(seed);
    let capacity = config.geometry.capacity();
    let (mut now, mut addr) = (0, 0);
    let mut requests = Vec::new();
    for _ in 0..3000 {
        // Bursts and pauses; neighbours, other rows of few banks, anything.
        now += match rng.below(20) {
            0 => rng.below(3000),
            1..=8 => rng.below(120),
            _ => rng.below(8),
        };
        addr = match rng.below(3) {
            0 => addr + LINE_LEN,
            1 => rng.below(16) * config.geometry.capacity() / 16,
            _ => rng.below(capacity),
        } % capacity;
        let op = if rng.below(5) < 2 { Op::Write } else { Op::Read };
        requests.push((now, op, addr / LINE_LEN * LINE_LEN));
    }
    requests
}

/// The commands of the memory, and when reads had their data.
fn commands(config: &Config, requests: &[(u64, Op, u64)]) -> (Vec<CommandRecord>, Vec<(u64, u64)>) {
    let (memory, there) = memory(config, requests);
    (memory.log(0).to_vec(), there)
}

/// For how long ranks had rows open.
fn active(config: &Config, requests: &[(u64, Op, u64)], end: u64) -> u64 {
    memory(config, requests).0.stats(end)[0].active
}

fn memory(config: &Config, requests: &[(u64, Op, u64)]) -> (Memory, Vec<(u64, u64)>) {
    let mut memory = Memory::new(*config).unwrap();
    memory.keep_log();
    let mut there = Vec::new();
    let mut now = 0;
    for (ticket, &(at, op, addr)) in requests.iter().enumerate() {
        // Like a processor, call `tick` only in cycles in which something happens.
        while now <= at {
            memory.tick(now, |ticket, time| there.push((ticket, time)));
            now = memory.wake().max(now + 1).min((at + 1).max(now + 1));
        }
        match op {
            Op::Read => {
                if let Answer::At(time) = memory.read(at, addr, ticket as u64) {
                    there.push((ticket as u64, time));
                }
            }
            Op::Write => memory.write(at, addr),
        }
    }
    while memory.wake() != u64::MAX {
        now = memory.wake().max(now);
        memory.tick(now, |ticket, time| there.push((ticket, time)));
    }
    there.sort_unstable();
    (memory, there)
}

/// A memory that issues every command that the commands so far do not forbid, and has no other
/// state.
struct Reference {
    config: Config,
    checker: Checker,
    reads: Vec<Waiting>,
    writes: Vec<Waiting>,
    draining: bool,
    there: Vec<(u64, u64)>,
}

#[derive(Clone, Copy)]
struct Waiting {
    ticket: u64,
    addr: u64,
    rank: usize,
    bank: usize,
    row: u32,
    served: bool,
}

impl Reference {
    fn new(config: &Config) -> Self {
        let (checker, there) = (Checker::new(config), vec![]);
        let (reads, writes) = (vec![], vec![]);
        Self { config: *config, checker, reads, writes, draining: false, there }
    }

    fn add(&mut self, now: u64, op: Op, addr: u64, ticket: u64) {
        let place = self.config.map.locate(&self.config.geometry, addr);
        let waiting = Waiting {
            ticket,
            addr,
            rank: place.rank as usize,
            bank: place.bank as usize,
            row: place.row,
            served: false,
        };
        let holds = |queue: &[Waiting]| queue.iter().any(|w| w.addr == addr);
        match op {
            Op::Read if holds(&self.writes) => self.there.push((ticket, now + self.config.forward)),
            Op::Read if holds(&self.reads) => self.there.push((ticket, now + 1)),
            Op::Read => self.reads.push(waiting),
            Op::Write if holds(&self.writes) => {}
            Op::Write => self.writes.push(waiting),
        }
    }

    fn tick(&mut self, now: u64) {
        if !now.is_multiple_of(CYCLE) {
            return;
        }
        self.reads.retain(|w| !w.served);
        self.writes.retain(|w| !w.served);
        if self.draining && self.writes.len() <= self.config.drain.low {
            self.draining = false;
        }
        if self.writes.len() > self.config.drain.high || self.reads.is_empty() {
            self.draining = true;
        }
        let op = if self.draining { Op::Write } else { Op::Read };
        let queue = if self.draining { &self.writes } else { &self.reads };
        let may = |w: &Waiting| {
            let command = self.needs(w, op, now);
            let Waiting { rank, bank, row, .. } = *w;
            let next = CommandRecord { at: now, command, rank, bank, row, closes: false };
            self.checker.broken_by(&next).is_none().then_some(command)
        };
        let issuable: Vec<_> =
            queue.iter().enumerate().filter_map(|(nth, w)| Some((nth, may(w)?))).collect();
        let hit = issuable.iter().find(|(_, command)| *command == Command::column(op));
        let first = match self.config.scheduler {
            Scheduler::Fcfs => issuable.first(),
            Scheduler::FrFcfs | Scheduler::FrFcfsClosing(_) => hit.or(issuable.first()),
        };
        let Some(&(nth, command)) = first else { return };
        let w = &mut match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        }[nth];
        let Waiting { rank, bank, row, ticket, .. } = *w;
        let mut logged = CommandRecord { at: now, command, rank, bank, row, closes: false };
        w.served = command == Command::column(op);
        if command == Command::Read {
            let Timing { cas, data, .. } = self.config.timing;
            self.there.push((ticket, now + (cas + data) * CYCLE));
        }
        logged.closes = command == Command::column(op) && self.closes(&logged);
        self.checker.push(logged);
    }

    /// Whether the next column command closes its row.
    fn closes(&self, next: &CommandRecord) -> bool {
        let Scheduler::FrFcfsClosing(most) = self.config.scheduler else { return false };
        let shut = self.checker.window(next.at).0;
        self.checker.columns(next.rank, next.bank) + 1 >= most as usize
            && self.checker.closes_after(next) + self.config.timing.rp * CYCLE <= shut
    }

    fn needs(&self, w: &Waiting, op: Op, now: u64) -> Command {
        match self.checker.open_row(w.rank, w.bank, now) {
            None => Command::Activate,
            Some(row) if row == w.row => Command::column(op),
            Some(_) => Command::Precharge,
        }
    }

    fn commands(mut self, requests: &[(u64, Op, u64)]) -> (Vec<CommandRecord>, Vec<(u64, u64)>) {
        let last = requests.last().map_or(0, |&(at, ..)| at);
        let mut coming = requests.iter().enumerate().peekable();
        let mut now = 0;
        while now <= last || !self.reads.is_empty() || !self.writes.is_empty() {
            self.tick(now);
            while let Some((ticket, &(_, op, addr))) = coming.next_if(|(_, (at, ..))| *at == now) {
                self.add(now, op, addr, ticket as u64);
            }
            now += 1;
        }
        self.there.sort_unstable();
        (self.checker.log().to_vec(), self.there)
    }
}

#[test]
fn commands_go_out_when_they_may() {
    let closing = Scheduler::FrFcfsClosing;
    for (seed, config) in [
        config(1, Scheduler::Fcfs),
        config(2, Scheduler::Fcfs),
        config(2, Scheduler::FrFcfs),
        config(4, Scheduler::FrFcfs),
        config(1, closing(1)),
        config(2, closing(3)),
        grouped(1, Scheduler::Fcfs),
        grouped(2, Scheduler::FrFcfs),
        grouped(2, closing(2)),
    ]
    .into_iter()
    .enumerate()
    {
        let requests = requests(&config, seed as u64);
        let (log, there) = commands(&config, &requests);
        let (expected_log, expected_there) = Reference::new(&config).commands(&requests);
        let differs = log.iter().zip(&expected_log).position(|(is, should)| is != should);
        let at = differs.unwrap_or(log.len().min(expected_log.len()));
        assert!(log == expected_log, "{config:?}: {:?} != {:?}", log.get(at), expected_log.get(at));
        assert_eq!(there, expected_there);
    }
}

/// Requests after a pause of whole windows, at any time around the following refresh: before it,
/// while the channel is shut, and from its end on.
#[test]
fn pauses_may_be_longer_than_windows() {
    for scheduler in [Scheduler::Fcfs, Scheduler::FrFcfsClosing(1)] {
        let config = config(2, scheduler);
        let (shut, end) = Checker::new(&config).window(0);
        for windows in 0..4 {
            for offset in (shut - 60 * CYCLE..end + 3 * CYCLE).step_by(3) {
                let at = windows * end + offset;
                let requests = [
                    (0, Op::Read, 0),
                    (at, Op::Read, 0),
                    (at, Op::Write, 64),
                    (at + end, Op::Read, 128),
                ];
                let is = commands(&config, &requests);
                assert_eq!(is, Reference::new(&config).commands(&requests), "{windows}, {offset}");
                let open = active(&config, &requests, at + 2 * end);
                assert!(open <= 4 * end, "{open} cycles of two ranks");
            }
        }
    }
}

/// A time that is one cycle off changes the commands, whichever time it is: so each of them binds.
#[test]
fn no_time_may_be_off_by_one() {
    /// The times between groups of banks.
    const APART: [(&str, Field); 3] = [
        ("apart.rrd", |t| &mut t.apart.as_mut().unwrap().rrd),
        ("apart.wtr", |t| &mut t.apart.as_mut().unwrap().wtr),
        ("apart.ccd", |t| &mut t.apart.as_mut().unwrap().ccd),
    ];
    let grouped = grouped(2, Scheduler::Fcfs);
    for (right, fields) in [(config(2, Scheduler::Fcfs), &FIELDS[..]), (grouped, &APART[..])] {
        let requests = requests(&right, 1);
        let is_right = commands(&right, &requests);
        for (name, field) in fields {
            for step in [-1, 1] {
                let mut wrong = right;
                let time = field(&mut wrong.timing);
                *time = time.checked_add_signed(step).unwrap();
                assert!(commands(&wrong, &requests) != is_right, "{name} {step}");
            }
        }
    }
}

/// The checker accepts the commands of the memory, and refuses them if any time is one cycle
/// longer, or if a command is impossible for its bank.
#[test]
fn commands_are_checked_by_themselves() {
    for scheduler in [Scheduler::Fcfs, Scheduler::FrFcfs, Scheduler::FrFcfsClosing(2)] {
        let config = config(2, scheduler);
        let (log, _) = commands(&config, &requests(&config, 3));
        assert_eq!(first_breach(&config, &log), None);
    }
    let right = config(2, Scheduler::Fcfs);
    let (log, _) = commands(&right, &requests(&right, 1));
    for (name, field) in FIELDS {
        let mut longer = right;
        *field(&mut longer.timing) += 1;
        assert!(first_breach(&longer, &log).is_some(), "{name}");
    }
    for nth in [0, 1, 100] {
        let mut twice = log.clone();
        twice.insert(nth + 1, log[nth]);
        assert_eq!(first_breach(&right, &twice).map(|breach| breach.nth), Some(nth + 1));
    }
    let mut other = log.clone();
    let read = other.iter().rposition(|logged| logged.command == Command::Read).unwrap();
    other[read].row += 1;
    assert_eq!(first_breach(&right, &other).map(|breach| breach.nth), Some(read));
}

/// Ranks have rows open from activations to the precharge of the last one, or to a refresh.
#[test]
fn time_with_open_rows_is_what_the_commands_say() {
    for scheduler in [Scheduler::Fcfs, Scheduler::FrFcfsClosing(2)] {
        let config = config(2, scheduler);
        let requests = requests(&config, 7);
        let mut checker = Checker::new(&config);
        let (log, _) = commands(&config, &requests);
        let end = log.last().unwrap().at;
        let mut open: Vec<(usize, u64, u64)> = vec![];
        for command in &log {
            checker.push(*command);
            let CommandRecord { at, rank, bank, .. } = *command;
            let shut = checker.window(at).0;
            match command.command {
                Command::Activate => open.push((rank * 8 + bank, at, shut)),
                Command::Precharge => {
                    open.iter_mut().rfind(|row| row.0 == rank * 8 + bank).unwrap().2 = at;
                }
                _ if command.closes => {
                    let closed = checker.closes_after(command);
                    open.iter_mut().rfind(|row| row.0 == rank * 8 + bank).unwrap().2 = closed;
                }
                _ => {}
            }
        }
        let is_open = |rank: usize, at: u64| {
            open.iter().any(|&(bank, from, to)| bank / 8 == rank && from <= at && at < to)
        };
        let times = (0..end).flat_map(|at| [(0, at), (1, at)]);
        let expected = times.filter(|&(rank, at)| is_open(rank, at)).count() as u64;
        assert_eq!(active(&config, &requests, end), expected, "{scheduler:?}");
    }
}
