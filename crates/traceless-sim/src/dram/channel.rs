//! One channel: its queues, its banks, and which command goes out when.

use super::config::{Config, REFRESHES_A_WINDOW, Scheduler, Timing, WriteDrain};
use super::log::{Command, Logged};
use super::queue::{Queue, Request};
use super::stats::ChannelStats;
use crate::workload::Op;

/// When nothing happens until somebody asks for something.
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
    banks: Vec<Bank>,
    ranks: Vec<Rank>,
    reads: Queue,
    writes: Queue,
    draining: bool,
    refresh: Refresh,
    /// Nothing happens before.
    wake: u64,
    stats: ChannelStats,
    log: Option<Vec<Logged>>,
}

#[derive(Clone, Copy, Default)]
struct Bank {
    open: Option<u32>,
    /// The first time at which each command may be issued, as far as this bank is concerned.
    activate: u64,
    precharge: u64,
    column: u64,
}

#[derive(Clone, Copy, Default)]
struct Rank {
    /// As above, as far as the rank and the bus are concerned.
    activate: u64,
    read: u64,
    write: u64,
    /// The last activations, and how many there were.
    activations: [u64; ACTIVATIONS_A_WINDOW],
    count: usize,
}

/// Every rank puts its refreshes off to the end of a window, and does them all then: what
/// schedulers come to that never issue one.
struct Refresh {
    window: u64,
    /// From here to the end of the window the channel is shut.
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
            banks: vec![Bank::default(); (geometry.ranks * geometry.banks) as usize],
            ranks: vec![Rank::default(); geometry.ranks as usize],
            reads: Queue::default(),
            writes: Queue::default(),
            draining: false,
            refresh: Refresh { window, shut: window - len, end: window, len },
            wake: NEVER,
            stats: ChannelStats::default(),
            log: None,
        }
    }

    /// From now on every command is logged.
    pub fn keep_log(&mut self) {
        self.log = Some(Vec::new());
    }

    pub fn log(&self) -> &[Logged] {
        self.log.as_deref().unwrap_or_default()
    }

    pub fn stats(&self) -> &ChannelStats {
        &self.stats
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

    /// Queues a request at `now`, after the commands of that time went out.
    pub fn add(&mut self, op: Op, request: Request) {
        let next = (request.arrived / self.cycle + 1) * self.cycle;
        self.wake = self.wake.min(next);
        match op {
            Op::Read => self.reads.push(request),
            Op::Write => self.writes.push(request),
        }
    }

    /// Counts a request that became part of one that waits.
    pub fn note_merged(&mut self, op: Op) {
        self.stats.of_mut(op).merged += 1;
    }

    /// Issues at most one command. A read that it serves is told to `done`, with the time at which
    /// its data is there. `now` is a multiple of the DRAM's cycle.
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
        // However many windows went by: the last one that shut the channel closed all rows.
        let last = (now - *shut) / *window * *window;
        let opens = *end + last;
        for bank in &mut self.banks {
            bank.open = None;
            bank.activate = bank.activate.max(opens);
        }
        if now >= opens {
            *end = opens + *window;
            *shut = *end - *len;
        }
    }

    fn choose_queue(&mut self) {
        let writes = self.writes.len();
        self.draining &= writes > self.drain.low;
        self.draining |= writes > self.drain.high || self.reads.is_empty();
    }

    /// The command that goes out now, and whose it is; or else the time at which one may.
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

    /// What a request needs next, and the first time from `now` on at which that may be issued.
    #[inline]
    fn ready(&self, op: Op, request: &Request, now: u64) -> (Command, u64) {
        let (bank, rank) = (&self.banks[request.bank], &self.ranks[request.rank]);
        let Timing { ras, rp, rtp, cwd, data, wr, .. } = self.timing;
        // What follows until the bank is closed again must fit in before a refresh.
        let (command, time, guard) = match bank.open {
            Some(row) if row == request.row => match op {
                Op::Read => (Command::Read, bank.column.max(rank.read), rtp),
                Op::Write => (Command::Write, bank.column.max(rank.write), cwd + data + wr),
            },
            Some(_) => (Command::Precharge, bank.precharge, rp),
            None => {
                let rank_ready = rank.activate.max(self.after_window(rank));
                (Command::Activate, bank.activate.max(rank_ready), ras)
            }
        };
        let time = time.max(now);
        (command, if time + guard > self.refresh.shut { self.refresh.end } else { time })
    }

    /// The first time at which fewer than four activations lie in the window before it, its far
    /// end included.
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
        if let Some(log) = &mut self.log {
            let Request { rank, row, bank, .. } = request;
            log.push(Logged { at: now, command, rank, bank: bank % self.banks_per_rank, row });
        }
        match command {
            Command::Activate => self.activate(&request, op, now),
            Command::Precharge => {
                let bank = &mut self.banks[request.bank];
                bank.open = None;
                bank.activate = bank.activate.max(now + self.timing.rp);
                bank.precharge = bank.precharge.max(now + self.timing.rp);
            }
            Command::Read => {
                self.read(&request, now);
                self.reads.serve(nth);
                let there = now + self.timing.cas + self.timing.data;
                self.stats.reads.count(there - request.arrived);
                done(request.ticket, there);
            }
            Command::Write => {
                self.write(&request, now);
                self.writes.serve(nth);
                let written = now + self.timing.data + self.timing.wr;
                self.stats.writes.count(written - request.arrived);
            }
        }
    }

    fn activate(&mut self, request: &Request, op: Op, now: u64) {
        let Timing { ras, rcd, rc, rrd, .. } = self.timing;
        let bank = &mut self.banks[request.bank];
        bank.open = Some(request.row);
        bank.precharge = bank.precharge.max(now + ras);
        bank.column = bank.column.max(now + rcd);
        bank.activate = bank.activate.max(now + rc);
        let rank = &mut self.ranks[request.rank];
        rank.activate = rank.activate.max(now + rrd);
        rank.activations[rank.count % ACTIVATIONS_A_WINDOW] = now;
        rank.count += 1;
        self.stats.of_mut(op).activations += 1;
    }

    fn read(&mut self, request: &Request, now: u64) {
        let Timing { cas, data, rtrs, ccd, cwd, rtp, .. } = self.timing;
        let bank = &mut self.banks[request.bank];
        bank.precharge = bank.precharge.max(now + rtp);
        for (nth, rank) in self.ranks.iter_mut().enumerate() {
            let gap = if nth == request.rank { ccd.max(data) } else { data + rtrs };
            rank.read = rank.read.max(now + gap);
            rank.write = rank.write.max(now + (cas + data + rtrs).saturating_sub(cwd));
        }
    }

    fn write(&mut self, request: &Request, now: u64) {
        let Timing { cas, data, rtrs, ccd, cwd, wr, wtr, .. } = self.timing;
        let bank = &mut self.banks[request.bank];
        bank.precharge = bank.precharge.max(now + cwd + data + wr);
        for (nth, rank) in self.ranks.iter_mut().enumerate() {
            let (write, read) = if nth == request.rank {
                (ccd.max(data), cwd + data + wtr)
            } else {
                (data + rtrs, (cwd + data + rtrs).saturating_sub(cas))
            };
            rank.write = rank.write.max(now + write);
            rank.read = rank.read.max(now + read);
        }
    }
}
