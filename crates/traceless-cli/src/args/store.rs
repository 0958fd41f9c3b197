//! Options of a cloud store's tree in a storage engine.

use super::parse_size;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// File with the password of the URL of --store, as its first line
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_password_file: Option<PathBuf>,
    /// Keep as many whole layers of the tree in memory, from the root on, as fit in so many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[arg(default_value = "64M", requires = "store")]
    pub cache: u64,
    /// Keep a second copy of the tree: `file:DIR`, or a URL as of --store. What is damaged in the
    /// store is read from the copy; a copy that was away is brought up to date. Given once for each
    /// --store
    #[arg(long, value_name = "STORE")]
    pub copy: Vec<String>,
    /// File with the password of the URL of --copy, as its first line
    #[arg(long, value_name = "FILE", requires = "copy")]
    pub copy_password_file: Option<PathBuf>,
}
