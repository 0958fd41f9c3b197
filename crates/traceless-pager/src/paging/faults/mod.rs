//! Answering page faults.
//!
//! | module | what it holds |
//! |---|---|
//! | `service` | which page comes, and which leaves for it |
//! | `frames` | which pages are resident, and which leaves next |
//! | `pace` | a constant rate of accesses to the store |
//! | `standby` | the standby list: pages that may come back before they leave |
//! | `affinity` | pins the program's thread to the processor that serves its faults |

pub mod affinity;
pub mod frames;
pub mod pace;
pub mod service;
pub mod standby;
