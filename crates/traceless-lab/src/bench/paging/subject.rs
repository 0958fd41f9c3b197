//! The ways to page a program that experiments compare.

use serde::{Deserialize, Serialize};
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::Settings;

/// How a program is run.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Without paging.
    Native,
    #[default]
    Paged,
    /// Paged; the bench subtracts from its time what the paper subtracts for its Eager.
    EagerSimulated,
    /// Paged; the bench divides its time in the scheme as the paper does for its Parallel.
    ParallelSimulated,
}

/// All settings of a variant, with the names of `traceless run`.
#[derive(Deserialize, Serialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PagingSubject {
    pub how: How,
    scheme: String,
    pub refresh: u32,
    cached: usize,
    helpers: usize,
    cipher: String,
    pub resident: usize,
    /// MiB that can be paged.
    memory_mib: usize,
    /// Pages are copied once more, by a host that gets the address.
    ocalls: bool,
    /// The program is ended when its faults are counted, and its output is not compared.
    pub stops: bool,
}

impl Default for PagingSubject {
    fn default() -> Self {
        Self {
            how: How::default(),
            scheme: "plain".to_owned(),
            refresh: 3,
            cached: 0,
            helpers: 1,
            cipher: "chacha20-hmac".to_owned(),
            resident: 15,
            memory_mib: 64,
            ocalls: false,
            stops: false,
        }
    }
}

impl PagingSubject {
    /// The settings as the pager takes them.
    pub fn settings(&self) -> Result<Settings, String> {
        let Self { scheme, refresh, cached, helpers, cipher, resident, ocalls, .. } = self;
        let pages = (self.memory_mib << 20) / PAGE_LEN;
        let text = format!(
            "scheme={scheme}\nrefresh={refresh}\ncached={cached}\nhelpers={helpers}\n\
             cipher={cipher}\nresident={resident}\npages={pages}\nocalls={ocalls}"
        );
        let settings = Settings::decode(&text).map_err(|e| e.to_string())?;
        settings.check().map_err(|e| e.to_string())?;
        Ok(settings)
    }
}
