//! The processors that packages are made for.

/// A processor with Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Platform {
    X86_64,
    Aarch64,
}

impl Platform {
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The processor of that name.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|platform| platform.arch() == name);
        found.ok_or_else(|| format!("packages are made for x86_64 and aarch64, not for {name}"))
    }

    /// Its name in Rust, in the kernel and in RPM.
    pub fn arch(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Its name in Debian and in OCI images.
    pub fn short_arch(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The target of Rust for programs that are linked statically.
    pub fn musl(self) -> String {
        format!("{}-unknown-linux-musl", self.arch())
    }

    /// The target of Rust for libraries that programs of the system load.
    pub fn gnu(self) -> String {
        format!("{}-unknown-linux-gnu", self.arch())
    }

    /// Whether this machine runs its programs.
    pub fn is_host(self) -> bool {
        self.arch() == std::env::consts::ARCH
    }
}
