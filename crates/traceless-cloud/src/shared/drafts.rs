//! Drafts that clients write beside each other.

use super::SharedGateway;
use crate::error::Result;
use crate::gateway::{ByteRange, Draft, ReadStep, TOGETHER_MAX, WriteStep};

/// Bytes that a client reads or writes before other clients get a turn.
const TURN_LEN: usize = 64 << 10;

impl SharedGateway {
    /// Appends bytes to a draft. Blocks that get full are written.
    pub fn append(&self, draft: &mut Draft, bytes: &[u8]) -> Result {
        for turn in bytes.chunks(TURN_LEN) {
            for blocks in draft.fill(turn, self.block_len).chunks(TOGETHER_MAX) {
                self.write(draft, blocks.to_vec())?;
            }
        }
        Ok(())
    }

    /// Writes the rest of a draft, and makes the dummy queries of its size class.
    pub fn complete(&self, draft: &mut Draft) -> Result {
        if let Some(last) = draft.take_last_block(self.block_len) {
            self.write(draft, vec![last])?;
        }
        let dummies = draft.dummies_left();
        self.send_dummies(dummies)?;
        draft.count_dummies(dummies);
        Ok(())
    }

    /// Gives back a draft that is not to be bound.
    pub fn abandon(&self, draft: Draft) {
        self.lock().abandon(draft);
    }

    /// Makes dummy queries, in turns with other clients.
    pub fn send_dummies(&self, count: usize) -> Result {
        let most = (TURN_LEN / self.block_len).clamp(1, TOGETHER_MAX);
        let mut left = count;
        while left > 0 {
            let turn = left.min(most);
            self.run_step(WriteStep::dummies(turn), |_| ())?;
            left -= turn;
        }
        Ok(())
    }

    /// Reads the next bytes of an object, as [`Gateway::read`](crate::gateway::Gateway::read) does.
    pub fn read(&self, reading: &mut ByteRange) -> Result<Vec<u8>> {
        self.run_step(ReadStep::new(reading.clone(), TURN_LEN), |step| {
            *reading = step.reading.clone();
            core::mem::take(&mut step.bytes)
        })
    }

    fn write(&self, draft: &mut Draft, blocks: Vec<Vec<u8>>) -> Result {
        let ids =
            self.run_step(WriteStep::blocks(blocks), |step| core::mem::take(&mut step.ids))?;
        draft.extend(&ids);
        Ok(())
    }
}
