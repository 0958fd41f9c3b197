//! One channel: its queues, its banks, and which command goes out when.

use super::config::{Apart, Config, REFRESHES_A_WINDOW, Scheduler, Timing, WriteDrain};
use super::log::{Command, CommandRecord};
use super::queue::{Queue, Request};
use super::stats::{ChannelStats, ChannelTimes};
use crate::workload::{LINE_LEN, Op};
use std::sync::Arc;
use traceless::trace::{self, Event, Surface, Witness};

/// The wake time of a channel that does nothing until the next request.
pub const NEVER: u64 = u64::MAX;

/// Activations of a rank in a window of `faw`.
const ACTIVATIONS_A_WINDOW: usize = 4;

/// A channel. Times are in cycles of the processor; commands go out at multiples of `clock_ratio`.
pub struct Channel {
    timing: Timing,
    cycle: u64,
    drain: WriteDrain,
    scheduler: Scheduler,
    banks_per_rank: usize,
    groups_per_rank: usize,
    banks: Vec<Bank>,
    groups: Vec<Group>,
    ranks: Vec<Rank>,
    reads: Queue,
    writes: Queue,
    draining: bool,
    refresh: Refresh,
    /// The channel does nothing before this time.
    wake: u64,
    stats: ChannelStats,
    times: ChannelTimes,
    log: Option<Vec<CommandRecord>>,
    witness: Option<Arc<dyn Witness>>,
}

#[derive(Clone, Copy, Default)]
struct Bank {
    open_row: Option<u32>,
    /// The first time at which each command may be issued, as far as this bank is concerned.
    next_activate: u64,
    next_precharge: u64,
    next_column: u64,
    /// Column commands since the row was opened.
    columns: u32,
}

/// Banks of a rank that share more than its other banks do.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_field_names, reason = "each is the time of the next command of its kind")]
struct Group {
    /// The first time at which each command may be issued, as far as rank, group and bus are
    /// concerned.
    next_activate: u64,
    next_read: u64,
    next_write: u64,
}

#[derive(Clone, Copy, Default)]
struct Rank {
    /// The times of the last activations, and how many there were in all.
    activations: [u64; ACTIVATIONS_A_WINDOW],
    count: usize,
    /// Banks that have a row open.
    open_banks: usize,
    /// Since when the rank has a row open, or last had.
    since: u64,
    /// Until when it last had a row open, if all rows are closed.
    until: u64,
    /// Cycles with an open row before `since`.
    active: u64,
}

/// Every rank puts its refreshes off to the end of a window, and does them all then, as ranks do
/// under a scheduler that never issues a refresh itself.
struct Refresh {
    window: u64,
    /// From here to the end of the window the channel takes no commands.
    shut: u64,
    /// End of the window.
    end: u64,
    /// The time that refreshing takes.
    len: u64,
}

impl Channel {
    pub fn new(config: &Config) -> Self {
        let geometry = config.geometry;
        let timing = config.timing.times(config.clock_ratio);
        let window = REFRESHES_A_WINDOW * timing.refi;
        let len = timing.rp + REFRESHES_A_WINDOW * timing.rfc;
        Self {
            timing,
            cycle: config.clock_ratio,
            drain: config.drain,
            scheduler: config.scheduler,
            banks_per_rank: geometry.banks as usize,
            groups_per_rank: geometry.groups as usize,
            groups: vec![Group::default(); (geometry.ranks * geometry.groups) as usize],
            banks: vec![Bank::default(); (geometry.ranks * geometry.banks) as usize],
            ranks: vec![Rank::default(); geometry.ranks as usize],
            reads: Queue::default(),
            writes: Queue::default(),
            draining: false,
            refresh: Refresh { window, shut: window - len, end: window, len },
            wake: NEVER,
            stats: ChannelStats::default(),
            times: ChannelTimes::default(),
            log: None,
            witness: None,
        }
    }

    /// Logs every command from now on.
    pub fn keep_log(&mut self) {
        self.log = Some(Vec::new());
    }

    pub fn log(&self) -> &[CommandRecord] {
        self.log.as_deref().unwrap_or_default()
    }

    /// Reports to `witness` each line that is read or written from now on.
    pub fn watch(&mut self, witness: Arc<dyn Witness>) {
        self.witness = Some(witness);
    }

    pub fn stats(&self, end: u64) -> ChannelStats {
        let active = self.ranks.iter().map(|rank| rank.active_until(end.min(self.refresh.shut)));
        ChannelStats { active: active.sum(), ..self.stats }
    }

    pub fn times(&self) -> &ChannelTimes {
        &self.times
    }

    pub fn reads(&self) -> &Queue {
        &self.reads
    }

    pub fn writes(&self) -> &Queue {
        &self.writes
    }

    /// The next time at which [`tick`](Self::tick) does anything.
    pub fn wake(&self) -> u64 {
        self.wake
    }

    /// Queues a request that arrives after the commands of its time went out.
    pub fn add(&mut self, op: Op, request: Request) {
        let next = (request.arrived / self.cycle + 1) * self.cycle;
        self.wake = self.wake.min(next);
        match op {
            Op::Read => self.reads.push(request),
            Op::Write => self.writes.push(request),
        }
    }

    /// Counts a read of a line that is in a queue already; the read takes `cycles`.
    pub fn note_merged_read(&mut self, cycles: u64) {
        self.stats.reads.merged += 1;
        self.times.merged_reads.record(cycles);
    }

    /// Counts a write of a line that is in the queue of writes already.
    pub fn note_merged_write(&mut self) {
        self.stats.writes.merged += 1;
    }

    /// Issues at most one command. For a read that it serves, calls `done` with the ticket and the
    /// time at which the data is there. `now` is a multiple of the DRAM's cycle.
    #[inline]
    pub fn tick(&mut self, now: u64, done: &mut impl FnMut(u64, u64)) {
        if now < self.wake {
            return;
        }
        self.begin_refresh(now);
        self.reads.remove_served();
        self.writes.remove_served();
        self.choose_queue();
        let op = if self.draining { Op::Write } else { Op::Read };
        let (chosen, wake) = self.choose(op, now);
        self.wake = wake;
        if let Some((nth, command)) = chosen {
            self.issue(op, nth, command, now, done);
            self.wake = now + self.cycle;
        }
    }

    fn begin_refresh(&mut self, now: u64) {
        let Refresh { window, shut, end, len } = &mut self.refresh;
        if now < *shut {
            return;
        }
        for rank in &mut self.ranks {
            rank.close_all(*shut);
        }
        // Skips all windows that went by; only the last of them can still be shut.
        let last = (now - *shut) / *window * *window;
        *shut += last;
        *end += last;
        for bank in &mut self.banks {
            bank.open_row = None;
            bank.columns = 0;
            bank.next_activate = bank.next_activate.max(*end);
        }
        if now >= *end {
            *end += *window;
            *shut = *end - *len;
        }
    }

    fn choose_queue(&mut self) {
        let writes = self.writes.len();
        self.draining &= writes > self.drain.low;
        self.draining |= writes > self.drain.high || self.reads.is_empty();
    }

    /// The command that goes out now, with the index of its request; or else the time at which one
    /// may.
    fn choose(&self, op: Op, now: u64) -> (Option<(usize, Command)>, u64) {
        let mut wake = NEVER;
        let mut oldest = None;
        for (nth, request) in self.queue(op).iter().enumerate() {
            let (command, ready) = self.ready(op, request, now);
            if ready > now {
                wake = wake.min(ready);
                continue;
            }
            if self.scheduler == Scheduler::Fcfs || command == Command::column(op) {
                return (Some((nth, command)), now);
            }
            oldest = oldest.or(Some((nth, command)));
        }
        (oldest, wake)
    }

    fn queue(&self, op: Op) -> &Queue {
        match op {
            Op::Read => &self.reads,
            Op::Write => &self.writes,
        }
    }

    /// The command that a request needs next, and the first time from `now` on at which it may be
    /// issued.
    #[inline]
    fn ready(&self, op: Op, request: &Request, now: u64) -> (Command, u64) {
        let (bank, group) = (&self.banks[request.bank], &self.groups[request.group]);
        let Timing { ras, rp, rtp, cwd, data, wr, .. } = self.timing;
        // The commands up to the bank's next precharge must fit in before a refresh.
        let (command, time, guard) = match bank.open_row {
            Some(row) if row == request.row => match op {
                Op::Read => (Command::Read, bank.next_column.max(group.next_read), rtp),
                Op::Write => {
                    (Command::Write, bank.next_column.max(group.next_write), cwd + data + wr)
                }
            },
            Some(_) => (Command::Precharge, bank.next_precharge, rp),
            None => {
                let window = self.after_window(&self.ranks[request.rank]);
                (Command::Activate, bank.next_activate.max(group.next_activate).max(window), ras)
            }
        };
        let time = time.max(now);
        (command, if time + guard > self.refresh.shut { self.refresh.end } else { time })
    }

    /// The first time at which fewer than four activations lie in the window before it, its far end
    /// included.
    #[inline]
    fn after_window(&self, rank: &Rank) -> u64 {
        if rank.count < ACTIVATIONS_A_WINDOW {
            return 0;
        }
        rank.activations[rank.count % ACTIVATIONS_A_WINDOW] + self.timing.faw + self.cycle
    }

    fn issue(
        &mut self,
        op: Op,
        nth: usize,
        command: Command,
        now: u64,
        done: &mut impl FnMut(u64, u64),
    ) {
        let request = self.queue(op)[nth];
        self.show(&request, command, now);
        match command {
            Command::Activate => self.activate(&request, op, now),
            Command::Precharge => self.close(&request, now),
            Command::Read => {
                self.read(&request, now);
                self.reads.serve(nth);
                let data_at = now + self.timing.cas + self.timing.data;
                self.stats.reads.count(data_at - request.arrived);
                self.times.reads.record(data_at - request.arrived);
                done(request.ticket, data_at);
            }
            Command::Write => {
                self.write(&request, now);
                self.writes.serve(nth);
                let written = now + self.timing.data + self.timing.wr;
                self.stats.writes.count(written - request.arrived);
                self.times.writes.record(written - request.arrived);
            }
        }
        let closes = command == Command::column(op) && self.closes_after(&request);
        if closes {
            self.close(&request, self.banks[request.bank].next_precharge);
        }
        if let Some(log) = &mut self.log {
            let Request { rank, row, bank, .. } = request;
            let bank = bank % self.banks_per_rank;
            log.push(CommandRecord { at: now, command, rank, bank, row, closes });
        }
    }

    /// Reports a command to the witness, as a probe on the bus observes it: the line, if the
    /// command moves data.
    #[inline]
    fn show(&self, request: &Request, command: Command, now: u64) {
        let Some(witness) = &self.witness else { return };
        let op = match command {
            Command::Read => trace::Op::Read,
            Command::Write => trace::Op::Write,
            Command::Activate | Command::Precharge => return,
        };
        let at = request.addr / LINE_LEN * LINE_LEN;
        witness.record(Event { time: now, surface: Surface::Dram, op, at, len: LINE_LEN as u32 });
    }

    /// Whether a row is closed after the column command that just went out for it. Shortly before a
    /// refresh it stays open, because the refresh closes all rows.
    fn closes_after(&mut self, request: &Request) -> bool {
        let Scheduler::FrFcfsClosing(most) = self.scheduler else { return false };
        let bank = &mut self.banks[request.bank];
        bank.columns += 1;
        bank.columns >= most && bank.next_precharge + self.timing.rp <= self.refresh.shut
    }

    /// The bank precharges from `at` on.
    fn close(&mut self, request: &Request, at: u64) {
        let bank = &mut self.banks[request.bank];
        bank.open_row = None;
        bank.columns = 0;
        bank.next_activate = bank.next_activate.max(at + self.timing.rp);
        bank.next_precharge = bank.next_precharge.max(at + self.timing.rp);
        self.ranks[request.rank].close(at);
    }

    /// All groups of banks, each with what it shares with the bank of `request`.
    fn groups(&mut self, request: &Request) -> impl Iterator<Item = (Near, &mut Group)> {
        let (own, rank, per_rank) = (request.group, request.rank, self.groups_per_rank);
        self.groups.iter_mut().enumerate().map(move |(nth, group)| {
            let near = if nth == own {
                Near::Group
            } else if nth / per_rank == rank {
                Near::Rank
            } else {
                Near::Channel
            };
            (near, group)
        })
    }

    fn activate(&mut self, request: &Request, op: Op, now: u64) {
        let Timing { ras, rcd, rc, rrd, .. } = self.timing;
        let apart = self.timing.apart();
        let bank = &mut self.banks[request.bank];
        bank.open_row = Some(request.row);
        bank.columns = 0;
        bank.next_precharge = bank.next_precharge.max(now + ras);
        bank.next_column = bank.next_column.max(now + rcd);
        bank.next_activate = bank.next_activate.max(now + rc);
        for (near, group) in self.groups(request) {
            let gap = match near {
                Near::Group => rrd,
                Near::Rank => apart.rrd,
                Near::Channel => continue,
            };
            group.next_activate = group.next_activate.max(now + gap);
        }
        let rank = &mut self.ranks[request.rank];
        rank.open(now);
        rank.activations[rank.count % ACTIVATIONS_A_WINDOW] = now;
        rank.count += 1;
        self.stats.of_mut(op).activations += 1;
    }

    fn read(&mut self, request: &Request, now: u64) {
        let Timing { cas, data, rtrs, ccd, cwd, rtp, .. } = self.timing;
        let Apart { ccd: ccd_apart, .. } = self.timing.apart();
        let bank = &mut self.banks[request.bank];
        bank.next_precharge = bank.next_precharge.max(now + rtp);
        for (near, group) in self.groups(request) {
            let gap = match near {
                Near::Group => ccd.max(data),
                Near::Rank => ccd_apart.max(data),
                Near::Channel => data + rtrs,
            };
            group.next_read = group.next_read.max(now + gap);
            group.next_write = group.next_write.max(now + (cas + data + rtrs).saturating_sub(cwd));
        }
    }

    fn write(&mut self, request: &Request, now: u64) {
        let Timing { cas, data, rtrs, ccd, cwd, wr, wtr, .. } = self.timing;
        let Apart { ccd: ccd_apart, wtr: wtr_apart, .. } = self.timing.apart();
        let bank = &mut self.banks[request.bank];
        bank.next_precharge = bank.next_precharge.max(now + cwd + data + wr);
        for (near, group) in self.groups(request) {
            let (write, read) = match near {
                Near::Group => (ccd.max(data), cwd + data + wtr),
                Near::Rank => (ccd_apart.max(data), cwd + data + wtr_apart),
                Near::Channel => (data + rtrs, (cwd + data + rtrs).saturating_sub(cas)),
            };
            group.next_write = group.next_write.max(now + write);
            group.next_read = group.next_read.max(now + read);
        }
    }
}

/// The smallest unit that a group of banks shares with a request's bank.
#[derive(Clone, Copy)]
enum Near {
    /// The group itself.
    Group,
    /// The rank.
    Rank,
    /// The channel only.
    Channel,
}

impl Rank {
    /// A row is opened.
    fn open(&mut self, now: u64) {
        if self.open_banks == 0 && now >= self.until {
            self.active += self.until - self.since;
            self.since = now;
        }
        self.open_banks += 1;
    }

    /// A row is closed from `at` on.
    fn close(&mut self, at: u64) {
        self.open_banks -= 1;
        self.until = self.until.max(at);
    }

    fn close_all(&mut self, at: u64) {
        if self.open_banks > 0 {
            self.open_banks = 0;
            self.until = self.until.max(at);
        }
    }

    /// Cycles until `end` in which a row was open.
    fn active_until(&self, end: u64) -> u64 {
        let until = if self.open_banks > 0 { end } else { self.until.min(end) };
        self.active + until.saturating_sub(self.since)
    }
}
