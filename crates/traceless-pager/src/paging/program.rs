//! Finding a program, and checking whether it can be paged.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most scripts in a row that name each other as interpreters.
const SCRIPTS_MAX: usize = 4;

/// Why a program cannot be paged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// No file has the name.
    #[error("{}: there is no such program", .0.display())]
    NotFound(OsString),
    /// The file is no program, or this user may not run it.
    #[error("{}: it cannot be executed", .0.display())]
    NotExecutable(PathBuf),
    /// The program loads no library.
    #[error("{}: it is linked statically, so its memory cannot be paged", .0.display())]
    Static(PathBuf),
    /// The program runs as another user, or with capabilities of its own.
    #[error("{}: it runs with rights of its own, so its memory cannot be paged", .0.display())]
    Privileged(PathBuf),
    /// The program is for another kind of processor than this one.
    #[error("{}: it is for another kind of processor, so it cannot be paged", .0.display())]
    OtherMachine(PathBuf),
}

/// The file that `exec` would run for a name, if it can be paged.
pub fn find_program(name: &OsStr) -> Result<PathBuf, ProgramError> {
    let path = find(name)?;
    check(&path)?;
    Ok(path)
}

/// The file that `exec` would run for a name.
fn find(name: &OsStr) -> Result<PathBuf, ProgramError> {
    if name.as_bytes().contains(&b'/') {
        return executable(PathBuf::from(name));
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut denied = None;
    for folder in std::env::split_paths(&folders) {
        match executable(folder.join(name)) {
            Ok(path) => return Ok(path),
            Err(e @ ProgramError::NotExecutable(_)) => denied = Some(e),
            Err(_) => {}
        }
    }
    Err(denied.unwrap_or_else(|| ProgramError::NotFound(name.into())))
}

fn executable(path: PathBuf) -> Result<PathBuf, ProgramError> {
    let Ok(metadata) = path.metadata() else { return Err(ProgramError::NotFound(path.into())) };
    let denied = rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_err();
    if denied || !metadata.is_file() {
        return Err(ProgramError::NotExecutable(path));
    }
    Ok(path)
}

/// Refuses a program that would run without being paged.
fn check(path: &Path) -> Result<(), ProgramError> {
    let mut path = path.to_path_buf();
    for _ in 0..SCRIPTS_MAX {
        match look_at(&path)? {
            None => return Ok(()),
            Some(interpreter) => path = executable(interpreter)?,
        }
    }
    Err(ProgramError::NotExecutable(path))
}

/// The interpreter of a script; `None` for a program that can be paged.
fn look_at(path: &Path) -> Result<Option<PathBuf>, ProgramError> {
    let unreadable = |_| ProgramError::NotExecutable(path.into());
    let mut file = File::open(path).map_err(unreadable)?;
    let mut head = Vec::new();
    (&mut file).take(4096).read_to_end(&mut head).map_err(unreadable)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let name = line.trim_ascii().split(u8::is_ascii_whitespace).next();
        let name = name.filter(|name| !name.is_empty());
        let interpreter = name.map(|name| PathBuf::from(OsStr::from_bytes(name)));
        return interpreter.map(Some).ok_or_else(|| ProgramError::NotExecutable(path.into()));
    }
    let metadata = file.metadata().map_err(unreadable)?;
    let changes_user = metadata.mode() & 0o6000 != 0;
    if changes_user || rustix::fs::getxattr(path, c"security.capability", &mut [0; 64][..]).is_ok()
    {
        return Err(ProgramError::Privileged(path.into()));
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(ProgramError::NotExecutable(path.into()));
    }
    if head.get(4..6) != Some(&[2, 1]) || number(&head, 18, 2) != own_machine() {
        return Err(ProgramError::OtherMachine(path.into()));
    }
    match is_dynamic(&file, &head) {
        Some(true) => Ok(None),
        Some(false) => Err(ProgramError::Static(path.into())),
        None => Err(ProgramError::NotExecutable(path.into())),
    }
}

/// Whether an ELF file names a dynamic loader. `None` if it is damaged.
fn is_dynamic(file: &File, head: &[u8]) -> Option<bool> {
    const INTERPRETER: u64 = 3;
    let (table, len, count) = (number(head, 32, 8)?, number(head, 54, 2)?, number(head, 56, 2)?);
    for nth in 0..count {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, table.checked_add(nth * len)?).ok()?;
        if number(&kind, 0, 4) == Some(INTERPRETER) {
            return Some(true);
        }
    }
    Some(false)
}

/// The ELF machine number of this program's own file.
fn own_machine() -> Option<u64> {
    let mut head = [0; 20];
    File::open("/proc/self/exe").ok()?.read_exact_at(&mut head, 0).ok()?;
    number(&head, 18, 2)
}

/// A little-endian number of `len` bytes.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..len].copy_from_slice(bytes.get(at..at + len)?);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn put(folder: &Path, name: &str, contents: &[u8], mode: u32) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// An ELF file with one segment, of type `kind`.
    fn elf(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&own_machine().unwrap().to_le_bytes()[..2]);
        (bytes[32], bytes[54], bytes[56], bytes[64]) = (64, 56, 1, kind);
        bytes
    }

    #[test]
    fn only_programs_that_can_be_paged_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let checked = |path: &Path| executable(path.into()).and_then(|path| check(&path));
        let dynamic = put(folder, "dynamic", &elf(3), 0o755);
        checked(&dynamic).unwrap();
        checked(&std::env::current_exe().unwrap()).unwrap();
        let script = format!("#! {} -x\n", dynamic.display());
        checked(&put(folder, "script", script.as_bytes(), 0o755)).unwrap();

        let fixed = put(folder, "static", &elf(1), 0o755);
        assert!(matches!(checked(&fixed), Err(ProgramError::Static(_))));
        let script = format!("#!{}\n", fixed.display());
        let script = put(folder, "other", script.as_bytes(), 0o755);
        assert!(matches!(checked(&script), Err(ProgramError::Static(_))));
        let setuid = put(folder, "setuid", &elf(3), 0o4755);
        assert!(matches!(checked(&setuid), Err(ProgramError::Privileged(_))));
        let mut other = elf(3);
        other[18] ^= 1;
        let other = put(folder, "machine", &other, 0o755);
        assert!(matches!(checked(&other), Err(ProgramError::OtherMachine(_))));
        let gone = folder.join("gone");
        assert!(matches!(checked(&gone), Err(ProgramError::NotFound(_))));
        for (name, contents, mode) in [
            ("data", &b"data"[..], 0o755),
            ("cut", &elf(3)[..40], 0o755),
            ("nobody", &elf(3), 0o644),
            ("empty", b"#!\n", 0o755),
        ] {
            let path = put(folder, name, contents, mode);
            assert!(matches!(checked(&path), Err(ProgramError::NotExecutable(_))), "{name}");
        }
        let itself = folder.join("itself");
        let script = format!("#!{}\n", itself.display());
        put(folder, "itself", script.as_bytes(), 0o755);
        assert!(matches!(checked(&itself), Err(ProgramError::NotExecutable(_))));
    }

    #[test]
    fn programs_are_found_as_exec_finds_them() {
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert!(matches!(find(OsStr::new("no-such-program")), Err(ProgramError::NotFound(_))));
        assert!(matches!(find(OsStr::new("/")), Err(ProgramError::NotExecutable(_))));
    }
}
