//! Checks that the commands of a channel keep every constraint, from the commands alone:
//! independent of the state by which a channel decides when they go out.

use super::config::{Apart, Config, REFRESHES_A_WINDOW, Timing};
use super::log::{Command, CommandRecord};

/// Activations of a rank in a window of tFAW.
const ACTIVATIONS_A_WINDOW: usize = 4;

/// A command that went out although a rule forbids it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Breach {
    /// The index of the command, counted from 0.
    pub nth: usize,
    /// The command.
    pub command: CommandRecord,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// The first of a channel's commands that breaks a rule, if any does.
pub fn first_breach(config: &Config, log: &[CommandRecord]) -> Option<Breach> {
    let mut checker = Checker::new(config);
    log.iter().enumerate().find_map(|(nth, &command)| {
        let rule = checker.broken_by(&command);
        checker.push(command);
        rule.map(|rule| Breach { nth, command, rule })
    })
}

/// A channel of which only the commands so far are known.
pub struct Checker {
    timing: Timing,
    cycle: u64,
    groups: usize,
    /// From one end of refreshes to the next, and how long the refreshes take.
    window: u64,
    len: u64,
    /// No gap between two commands is longer than this.
    reach: u64,
    log: Vec<CommandRecord>,
}

impl Checker {
    /// A checker of a channel without commands so far.
    pub fn new(config: &Config) -> Self {
        let timing = config.timing.times(config.clock_ratio);
        let Timing { rcd, rp, cas, rc, ras, rrd, wr, wtr, rtp, ccd, cwd, rtrs, data, .. } = timing;
        Self {
            timing,
            cycle: config.clock_ratio,
            groups: config.geometry.groups as usize,
            window: REFRESHES_A_WINDOW * timing.refi,
            len: timing.rp + REFRESHES_A_WINDOW * timing.rfc,
            reach: rcd + rp + cas + rc + ras + rrd + wr + wtr + rtp + ccd + cwd + rtrs + data,
            log: vec![],
        }
    }

    /// The commands so far.
    pub fn log(&self) -> &[CommandRecord] {
        &self.log
    }

    /// Records a command that goes out.
    pub fn push(&mut self, command: CommandRecord) {
        self.log.push(command);
    }

    /// For the refresh window that holds `now`: when the channel shuts for its refreshes, and when
    /// it opens again.
    pub fn window(&self, now: u64) -> (u64, u64) {
        let end = (now / self.window + 1) * self.window;
        (end - self.len, end)
    }

    /// The row that a bank has open.
    pub fn open_row(&self, rank: usize, bank: usize, now: u64) -> Option<u32> {
        let last = self.of_bank(rank, bank).next()?;
        let is_closed = last.command == Command::Precharge || last.closes;
        // Refreshing closes all rows.
        let is_fresh = self.window(last.at) == self.window(now);
        (is_fresh && !is_closed).then_some(last.row)
    }

    /// Column commands of a bank since its last activation.
    pub fn columns(&self, rank: usize, bank: usize) -> usize {
        self.of_bank(rank, bank).take_while(|c| c.command != Command::Activate).count()
    }

    /// When the bank of `last` precharges, if `last` is a command with auto-precharge.
    pub fn closes_after(&self, last: &CommandRecord) -> u64 {
        let mut at = last.at + self.until_precharge(last.command);
        for command in self.of_bank(last.rank, last.bank) {
            at = at.max(command.at + self.until_precharge(command.command));
            if command.command == Command::Activate {
                break;
            }
        }
        at
    }

    /// The rule that a command breaks if it goes out next, if there is one.
    pub fn broken_by(&self, next: &CommandRecord) -> Option<&'static str> {
        let Timing { ras, rp, rtp, cwd, data, wr, faw, .. } = self.timing;
        let CommandRecord { at, rank, bank, .. } = *next;
        if !at.is_multiple_of(self.cycle) || self.log.last().is_some_and(|last| last.at >= at) {
            return Some("one command in a cycle of the memory");
        }
        let open = self.open_row(rank, bank, at);
        let (is_possible, guard) = match next.command {
            Command::Activate => (open.is_none(), ras),
            Command::Precharge => (open.is_some(), rp),
            Command::Read => (open == Some(next.row), rtp),
            Command::Write => (open == Some(next.row), cwd + data + wr),
        };
        if !is_possible {
            return Some("rows are opened, used and closed in turn");
        }
        if at + guard > self.window(at).0 {
            return Some("a bank is closed before refreshes");
        }
        let last = self.of_bank(rank, bank).next();
        if last.is_some_and(|last| last.closes && at < self.closes_after(last) + rp) {
            return Some("tRP after a precharge by itself");
        }
        if next.closes && self.closes_after(next) + rp > self.window(at).0 {
            return Some("a bank is closed before refreshes");
        }
        let recent = self.log.iter().rev().take_while(|c| at - c.at <= faw);
        let activations = recent.filter(|c| c.command == Command::Activate && c.rank == rank);
        if next.command == Command::Activate && activations.count() >= ACTIVATIONS_A_WINDOW {
            return Some("tFAW");
        }
        let near = self.log.iter().rev().take_while(|c| at - c.at < self.reach);
        let gaps = near.map(|before| (at - before.at, self.gap(before, next)));
        let mut short = gaps.filter(|(is, (_, least))| is < least);
        short.next().map(|(_, (rule, _))| rule)
    }

    /// The commands of a bank, the last first.
    fn of_bank(&self, rank: usize, bank: usize) -> impl Iterator<Item = &CommandRecord> {
        self.log.iter().rev().filter(move |c| (c.rank, c.bank) == (rank, bank))
    }

    /// The least time from a command to a precharge of its bank.
    fn until_precharge(&self, command: Command) -> u64 {
        let Timing { ras, rtp, cwd, data, wr, .. } = self.timing;
        match command {
            Command::Activate => ras,
            Command::Read => rtp,
            Command::Write => cwd + data + wr,
            Command::Precharge => 0,
        }
    }

    /// The least time between two commands, and the rule that requires it.
    fn gap(&self, before: &CommandRecord, next: &CommandRecord) -> (&'static str, u64) {
        use Command::{Activate, Precharge, Read, Write};
        let t = &self.timing;
        let Apart { rrd, wtr, ccd } = t.apart();
        let rank = before.rank == next.rank;
        let group = rank && before.bank % self.groups == next.bank % self.groups;
        let bank = rank && before.bank == next.bank;
        match (before.command, next.command) {
            (Activate, Activate) if bank => ("tRC", t.rc.max(t.rrd)),
            (Activate, Activate) if group => ("tRRD", t.rrd),
            (Activate, Activate) if rank => ("tRRD", rrd),
            (Activate, Read | Write) if bank => ("tRCD", t.rcd),
            (Activate | Read | Write, Precharge) if bank => {
                ("tRAS, tRTP, or tWR after the data", self.until_precharge(before.command))
            }
            (Precharge, Activate | Precharge) if bank => ("tRP", t.rp),
            (Read, Read) | (Write, Write) if group => ("tCCD, or the data", t.ccd.max(t.data)),
            (Read, Read) | (Write, Write) if rank => ("tCCD, or the data", ccd.max(t.data)),
            (Read, Read) | (Write, Write) => ("tRTRS after the data", t.data + t.rtrs),
            (Read, Write) => {
                ("tRTRS from read to write", (t.cas + t.data + t.rtrs).saturating_sub(t.cwd))
            }
            (Write, Read) if group => ("tWTR", t.cwd + t.data + t.wtr),
            (Write, Read) if rank => ("tWTR", t.cwd + t.data + wtr),
            (Write, Read) => {
                ("tRTRS from write to read", (t.cwd + t.data + t.rtrs).saturating_sub(t.cas))
            }
            _ => ("", 0),
        }
    }
}
