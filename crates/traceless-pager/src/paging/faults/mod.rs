//! Answering page faults.
//!
//! | module | what it holds |
//! |---|---|
//! | `service` | what is answered to a fault; the state of a pager |
//! | `exchange` | how a page comes, and one leaves for it |
//! | `eviction` | which pages leave, and how many may be resident |
//! | `constant_rate` | accesses to the store at ticks |
//! | `copying` | copies of all pages, for a copy of the program |
//! | `remapping` | what becomes of pages when the program changes its mappings |
//! | `page_numbers` | which page of the program each page number of the scheme stands for |
//! | `frames` | which pages are resident, and which leaves next |
//! | `pace` | what a constant rate is, and when its ticks are |
//! | `standby` | the standby list: pages that may come back before they leave |
//! | `stack` | the stack of a thread that keeps faults from being answered |
//! | `affinity` | pins the program's thread to the processor that serves its faults |

pub mod affinity;
mod constant_rate;
pub mod copying;
pub mod eviction;
mod exchange;
pub mod frames;
pub mod pace;
pub mod page_numbers;
mod remapping;
pub mod service;
mod stack;
pub mod standby;
