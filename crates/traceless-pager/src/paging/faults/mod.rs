//! Answering page faults.
//!
//! | module | what it holds |
//! |---|---|
//! | `service` | which page comes, and which leaves for it |
//! | `page_numbers` | which page of the program each page number of the scheme stands for |
//! | `frames` | which pages are resident, and which leaves next |
//! | `pace` | a constant rate of accesses to the store |
//! | `standby` | the standby list: pages that may come back before they leave |
//! | `stack` | the stack of a thread that keeps faults from being answered |
//! | `affinity` | pins the program's thread to the processor that serves its faults |

pub mod affinity;
pub mod frames;
pub mod pace;
mod page_numbers;
pub mod service;
mod stack;
pub mod standby;
