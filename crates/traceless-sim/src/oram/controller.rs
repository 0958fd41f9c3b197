//! The interface of a scheme to the caches of the processor.

use super::recursive::Recursive;
use super::tree::Tree;
use traceless::controller::Controller;
use traceless::error::{Error, Result};
use traceless::posmap::Labels;
use traceless::scheme::path::PathOram;
use traceless::scheme::rho::Rho;
use traceless::scheme::ring::{Ring, RingTree};
use traceless::scheme::unified::Unified;
use traceless::types::Addr;

/// A controller, and operations that only some schemes support. Its trees have no bodies. A scheme
/// with blocks that stay in the tree may leave out all but `stash`.
pub trait SimController: Controller {
    /// Blocks in the fullest stash of the scheme.
    fn stash(&self) -> usize;

    /// Whether the next step continues the last one's access, in a scheme that takes several steps.
    fn is_under_way(&self) -> bool {
        false
    }

    /// Groups of labels that were replaced as a whole so far.
    fn group_remaps(&self) -> u64 {
        0
    }

    /// Bits of the labels in a block of the map, if the map has blocks.
    fn map_block_bits(&self) -> u64 {
        0
    }

    /// Whether a request that comes now would take no path access.
    fn is_served_without_path(&mut self, addr: Addr) -> bool {
        let _ = addr;
        false
    }

    /// Requests a block that then leaves the memory.
    fn submit_fetch(&mut self, id: u64, addr: Addr) -> Result {
        let _ = (id, addr);
        Err(NOT_UNIFIED)
    }

    /// Returns a block that left the memory.
    fn submit_return(&mut self, id: u64, addr: Addr) -> Result {
        let _ = (id, addr);
        Err(NOT_UNIFIED)
    }

    /// Offers a line that may be written back in place of a dummy.
    fn offer(&mut self, id: u64, addr: Addr) -> Result {
        let _ = (id, addr);
        Err(NOT_UNIFIED)
    }

    /// Withdraws the offered line.
    fn withdraw(&mut self) {}
}

const NOT_UNIFIED: Error = Error::Geometry("only a unified ORAM can do that");

impl<L: Labels> SimController for Unified<Tree, L> {
    fn stash(&self) -> usize {
        self.engine().stash().len()
    }

    fn group_remaps(&self) -> u64 {
        Self::group_remaps(self)
    }

    fn map_block_bits(&self) -> u64 {
        self.group_len() as u64 * 8
    }

    fn is_served_without_path(&mut self, addr: Addr) -> bool {
        Self::is_served_without_path(self, addr)
    }

    fn submit_fetch(&mut self, id: u64, addr: Addr) -> Result {
        Self::submit_fetch(self, id, addr)
    }

    fn submit_return(&mut self, id: u64, addr: Addr) -> Result {
        Self::submit_return(self, id, addr)
    }

    fn offer(&mut self, id: u64, addr: Addr) -> Result {
        Self::offer(self, id, addr)
    }

    fn withdraw(&mut self) {
        Self::withdraw(self);
    }
}

impl<L: Labels> SimController for Rho<Tree, Tree, L> {
    fn stash(&self) -> usize {
        self.small().stash().len().max(self.main().engine().stash().len())
    }

    fn group_remaps(&self) -> u64 {
        self.main().group_remaps()
    }

    fn map_block_bits(&self) -> u64 {
        self.main().map_block_bits()
    }
}

impl SimController for PathOram<Tree> {
    fn stash(&self) -> usize {
        self.engines().iter().map(|engine| engine.stash().len()).max().unwrap_or(0)
    }
}

impl SimController for Recursive<Tree> {
    fn stash(&self) -> usize {
        Self::stash(self)
    }

    fn is_under_way(&self) -> bool {
        self.is_in_a_round()
    }
}

impl<T: RingTree> SimController for Ring<T> {
    fn stash(&self) -> usize {
        Self::stash(self).len()
    }
}
