//! Every command goes out as soon as no constraint forbids it, and not before: compared with a
//! memory that looks at each cycle and at all commands so far.

use traceless::rng::{Rng, Seeded};
use traceless_sim::backend::Answer;
use traceless_sim::dram::{
    AddressMap, Apart, Command, Config, Geometry, Logged, Memory, Scheduler, Timing, WriteDrain,
};
use traceless_sim::workload::{LINE_LEN, Op};

const CYCLE: u64 = 4;

/// One of the times of a memory.
type Field = fn(&mut Timing) -> &mut u64;

fn config(ranks: u32, scheduler: Scheduler) -> Config {
    Config {
        geometry: Geometry { channels: 1, ranks, banks: 8, groups: 1, rows: 16, columns: 8 },
        map: AddressMap::COLUMNS_LAST,
        // Refreshes come often, so that much happens around them. What other times imply in real
        // memories binds here, too.
        timing: Timing { refi: 150, rfc: 20, ccd: 5, rc: 41, ..Timing::DDR3_1600_1GB },
        drain: WriteDrain { capacity: 24, high: 12, low: 5 },
        scheduler,
        ..Config::ONE_CHANNEL
    }
}

/// The same with four groups of banks, between which times are shorter.
fn grouped(ranks: u32, scheduler: Scheduler) -> Config {
    let config = config(ranks, scheduler);
    let apart = Some(Apart { rrd: 4, wtr: 3, ccd: 5 });
    Config {
        geometry: Geometry { groups: 4, banks: 16, ..config.geometry },
        timing: Timing { rrd: 6, wtr: 9, ccd: 7, faw: 21, apart, ..config.timing },
        ..config
    }
}

/// Requests: when, what, and which byte.
fn requests(config: &Config, seed: u64) -> Vec<(u64, Op, u64)> {
    let mut rng = Seeded::new(seed);
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
fn commands(config: &Config, requests: &[(u64, Op, u64)]) -> (Vec<Logged>, Vec<(u64, u64)>) {
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
        // As a processor does: only cycles in which something happens.
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

/// A memory that knows the commands so far and nothing else.
struct Reference {
    config: Config,
    log: Vec<Logged>,
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
        let (log, there, reads, writes) = (vec![], vec![], vec![], vec![]);
        Self { config: *config, log, reads, writes, draining: false, there }
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
            self.allowed(command, w, now).then_some(command)
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
        self.log.push(Logged { at: now, command, rank, bank, row, closes: false });
        w.served = command == Command::column(op);
        if command == Command::Read {
            let Timing { cas, data, .. } = self.config.timing;
            self.there.push((ticket, now + (cas + data) * CYCLE));
        }
        let closes = command == Command::column(op) && self.closes(rank, bank, now);
        self.log.last_mut().unwrap().closes = closes;
    }

    /// Whether the column command that just went out to a bank closes its row.
    fn closes(&self, rank: usize, bank: usize, now: u64) -> bool {
        let Scheduler::FrFcfsClosing(most) = self.config.scheduler else { return false };
        let columns = self.since_activation(rank, bank).len() - 1;
        columns >= most as usize
            && self.closed_at(rank, bank) + self.config.timing.rp * CYCLE <= self.window(now).0
    }

    /// The last activation of a bank, and its commands since then.
    fn since_activation(&self, rank: usize, bank: usize) -> Vec<Logged> {
        let own = self.log.iter().rev().filter(|c| (c.rank, c.bank) == (rank, bank));
        let mut commands: Vec<Logged> = vec![];
        for command in own {
            commands.push(*command);
            if command.command == Command::Activate {
                break;
            }
        }
        commands
    }

    /// When a bank that was told to precharge by itself does.
    fn closed_at(&self, rank: usize, bank: usize) -> u64 {
        let Timing { ras, rtp, cwd, data, wr, .. } = self.config.timing;
        let may = |c: &Logged| match c.command {
            Command::Activate => c.at + ras * CYCLE,
            Command::Read => c.at + rtp * CYCLE,
            Command::Write => c.at + (cwd + data + wr) * CYCLE,
            Command::Precharge => 0,
        };
        self.since_activation(rank, bank).iter().map(may).max().unwrap_or(0)
    }

    /// The window that `now` lies in: when the channel shuts, and when it opens again.
    fn window(&self, now: u64) -> (u64, u64) {
        let Timing { refi, rfc, rp, .. } = self.config.timing;
        let end = (now / (8 * refi * CYCLE) + 1) * 8 * refi * CYCLE;
        (end - (rp + 8 * rfc) * CYCLE, end)
    }

    fn needs(&self, w: &Waiting, op: Op, now: u64) -> Command {
        let mut own = self.log.iter().rev().filter(|c| (c.rank, c.bank) == (w.rank, w.bank));
        // Refreshing closes all rows.
        let fresh = |c: &&Logged| self.window(c.at) == self.window(now);
        match own.next().filter(fresh) {
            None
            | Some(Logged { command: Command::Precharge, .. } | Logged { closes: true, .. }) => {
                Command::Activate
            }
            Some(Logged { row, .. }) if *row == w.row => Command::column(op),
            Some(_) => Command::Precharge,
        }
    }

    fn allowed(&self, command: Command, w: &Waiting, now: u64) -> bool {
        let Timing { ras, rp, rtp, cwd, data, wr, faw, .. } = self.config.timing;
        let guard = match command {
            Command::Activate => ras,
            Command::Precharge => rp,
            Command::Read => rtp,
            Command::Write => cwd + data + wr,
        };
        if now + guard * CYCLE > self.window(now).0 {
            return false;
        }
        let own = self.log.iter().rev().find(|c| (c.rank, c.bank) == (w.rank, w.bank));
        if own.is_some_and(|c| c.closes) && now < self.closed_at(w.rank, w.bank) + rp * CYCLE {
            return false;
        }
        // Nothing reaches back further than this.
        let near = |c: &&Logged| now - c.at < 100 * CYCLE;
        let recent = || self.log.iter().rev().take_while(near);
        let activations = recent().filter(|c| {
            c.command == Command::Activate && c.rank == w.rank && now - c.at <= faw * CYCLE
        });
        let full = command == Command::Activate && activations.count() >= 4;
        !full && recent().all(|c| now - c.at >= self.gap(c, command, w) * CYCLE)
    }

    /// Cycles from a command that went out to one that is about to.
    fn gap(&self, before: &Logged, command: Command, w: &Waiting) -> u64 {
        use Command::{Activate, Precharge, Read, Write};
        let t = self.config.timing;
        let groups = self.config.geometry.groups as usize;
        let rank = before.rank == w.rank;
        let group = rank && before.bank % groups == w.bank % groups;
        let bank = rank && before.bank == w.bank;
        let apart = t.apart.unwrap_or(Apart { rrd: t.rrd, wtr: t.wtr, ccd: t.ccd });
        match (before.command, command) {
            (Activate, Activate) if bank => t.rc.max(t.rrd),
            (Activate, Activate) if group => t.rrd,
            (Activate, Activate) if rank => apart.rrd,
            (Activate, Read | Write) if bank => t.rcd,
            (Activate, Precharge) if bank => t.ras,
            (Precharge, Activate | Precharge) if bank => t.rp,
            (Read, Precharge) if bank => t.rtp,
            (Write, Precharge) if bank => t.cwd + t.data + t.wr,
            (Read, Read) | (Write, Write) if group => t.ccd.max(t.data),
            (Read, Read) | (Write, Write) if rank => apart.ccd.max(t.data),
            (Read, Read) | (Write, Write) => t.data + t.rtrs,
            (Read, Write) => t.cas + t.data + t.rtrs - t.cwd,
            (Write, Read) if group => t.cwd + t.data + t.wtr,
            (Write, Read) if rank => t.cwd + t.data + apart.wtr,
            (Write, Read) => t.cwd + t.data + t.rtrs - t.cas,
            _ => 0,
        }
    }

    fn commands(mut self, requests: &[(u64, Op, u64)]) -> (Vec<Logged>, Vec<(u64, u64)>) {
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
        (self.log, self.there)
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

/// What is asked for after a pause of whole windows, at any time around the refresh that it meets:
/// before, while the channel is shut, and from its end on.
#[test]
fn pauses_may_be_longer_than_windows() {
    for scheduler in [Scheduler::Fcfs, Scheduler::FrFcfsClosing(1)] {
        let config = config(2, scheduler);
        let (shut, end) = Reference::new(&config).window(0);
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

/// A time that is one cycle off is noticed, whichever it is: so each of them binds.
#[test]
fn no_time_may_be_off_by_one() {
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
    /// Those between groups.
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

/// Ranks have rows open from activations to the precharge of the last one, or to a refresh.
#[test]
fn time_with_open_rows_is_what_the_commands_say() {
    for scheduler in [Scheduler::Fcfs, Scheduler::FrFcfsClosing(2)] {
        let config = config(2, scheduler);
        let requests = requests(&config, 7);
        let mut reference = Reference::new(&config);
        let (log, _) = commands(&config, &requests);
        let end = log.last().unwrap().at;
        let mut open: Vec<(usize, u64, u64)> = vec![];
        for command in &log {
            reference.log.push(*command);
            let Logged { at, rank, bank, .. } = *command;
            let shut = reference.window(at).0;
            match command.command {
                Command::Activate => open.push((rank * 8 + bank, at, shut)),
                Command::Precharge => {
                    open.iter_mut().rfind(|row| row.0 == rank * 8 + bank).unwrap().2 = at;
                }
                _ if command.closes => {
                    let closed = reference.closed_at(rank, bank);
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
