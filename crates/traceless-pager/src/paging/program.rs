//! Finding a program, and checking whether it can be paged.

use super::elf::{ElfHeaders, number};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most scripts in a row that name each other as interpreters.
const SCRIPTS_MAX: usize = 4;

/// Whether programs that are linked statically can be paged on this kind of processor.
const LOADS_STATIC: bool = cfg!(target_arch = "x86_64");

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
    /// The program loads no library, and cannot be loaded by one here.
    #[error(
        "{}: it is linked statically: that is paged on x86-64, and in the mode thread",
        .0.display()
    )]
    Static(PathBuf),
    /// The program runs as another user, or with capabilities of its own.
    #[error("{}: it runs with rights of its own, so its memory cannot be paged", .0.display())]
    Privileged(PathBuf),
    /// The program is for another kind of processor than this one.
    #[error("{}: it is for another kind of processor, so it cannot be paged", .0.display())]
    OtherMachine(PathBuf),
}

/// A program that can be paged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageableProgram {
    /// The file that `exec` would run.
    pub path: PathBuf,
    /// The program that is loaded in the end, if it is linked statically.
    pub static_program: Option<StaticProgram>,
}

/// A program that is linked statically, so that it loads no library by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticProgram {
    /// Its file.
    pub path: PathBuf,
    /// The arguments that scripts put between its name and the arguments of the first script, in
    /// the place of that script's name. None if it is no script.
    pub script: Vec<OsString>,
}

impl StaticProgram {
    /// The dynamic loader, which loads the library that is preloaded. That library loads the
    /// program.
    pub const LOADER: &CStr = c"/lib64/ld-linux-x86-64.so.2";

    /// A library of the C library's that the loader gets in the place of a program.
    pub const STAND_IN: &str = "libdl.so.2";

    /// The program that is run if `exec` runs a file, if it is one.
    pub fn at(path: &Path) -> Option<Self> {
        check(path).ok().flatten()
    }

    /// The loader's path.
    pub fn loader() -> &'static OsStr {
        OsStr::from_bytes(Self::LOADER.to_bytes())
    }

    /// The arguments of the loader that come before the program's own after its name.
    pub fn loader_arguments(&self, library: &Path, name: &OsStr) -> Vec<OsString> {
        let name = if self.script.is_empty() { name } else { self.path.as_os_str() };
        let (stand_in, path) = (OsStr::new(Self::STAND_IN), self.path.as_os_str());
        let preload = [OsStr::new("--preload"), library.as_os_str(), stand_in, path, name];
        let script = self.script.iter().map(OsString::as_os_str);
        preload.into_iter().chain(script).map(OsString::from).collect()
    }
}

/// The program that `exec` would run for a name, if it can be paged.
pub fn find_program(name: &OsStr) -> Result<PageableProgram, ProgramError> {
    let path = find(name)?;
    let static_program = check(&path)?;
    Ok(PageableProgram { path, static_program })
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

/// Refuses a program that would run without being paged. Returns the one that is linked statically,
/// if it is.
fn check(path: &Path) -> Result<Option<StaticProgram>, ProgramError> {
    let (mut path, mut script) = (path.to_path_buf(), Vec::new());
    for _ in 0..SCRIPTS_MAX {
        match look_at(&path)? {
            Kind::Dynamic => return Ok(None),
            Kind::Static => return Ok(Some(StaticProgram { path, script })),
            Kind::Script { interpreter, argument } => {
                script.insert(0, path.into());
                script.splice(0..0, argument);
                path = executable(interpreter)?;
            }
        }
    }
    Err(ProgramError::NotExecutable(path))
}

/// What a file that can be executed is.
enum Kind {
    /// It names a dynamic loader.
    Dynamic,
    /// It does not.
    Static,
    /// It names a program that runs it, and perhaps an argument for that.
    Script { interpreter: PathBuf, argument: Option<OsString> },
}

fn look_at(path: &Path) -> Result<Kind, ProgramError> {
    let unreadable = |_| ProgramError::NotExecutable(path.into());
    let mut file = File::open(path).map_err(unreadable)?;
    let mut head = Vec::new();
    (&mut file).take(4096).read_to_end(&mut head).map_err(unreadable)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(line).ok_or_else(|| ProgramError::NotExecutable(path.into()));
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
    match ElfHeaders::read(&file).map(|headers| headers.is_dynamic()) {
        Some(true) => Ok(Kind::Dynamic),
        // The loader takes the library that is preloaded to what it loads.
        Some(false) if is_loader(path) => Ok(Kind::Dynamic),
        Some(false) if LOADS_STATIC => Ok(Kind::Static),
        Some(false) => Err(ProgramError::Static(path.into())),
        None => Err(ProgramError::NotExecutable(path.into())),
    }
}

/// Whether a file is a dynamic loader, by its name.
fn is_loader(path: &Path) -> bool {
    let whole = path.canonicalize().unwrap_or_else(|_| path.into());
    let name = whole.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"ld") && name.windows(3).any(|part| part == b".so")
}

/// The script that begins with a line, after its mark.
fn script(line: &[u8]) -> Option<Kind> {
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (name, argument) = line.split_at(end);
    let argument = Some(argument.trim_ascii()).filter(|argument| !argument.is_empty());
    (!name.is_empty()).then(|| Kind::Script {
        interpreter: OsStr::from_bytes(name).into(),
        argument: argument.map(|argument| OsStr::from_bytes(argument).into()),
    })
}

/// The ELF machine number of this program's own file.
fn own_machine() -> Option<u64> {
    let mut head = [0; 20];
    File::open("/proc/self/exe").ok()?.read_exact_at(&mut head, 0).ok()?;
    number(&head, 18, 2)
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
        assert_eq!(checked(&dynamic).unwrap(), None);
        assert_eq!(checked(&std::env::current_exe().unwrap()).unwrap(), None);
        let script = format!("#! {} -x\n", dynamic.display());
        assert_eq!(checked(&put(folder, "script", script.as_bytes(), 0o755)).unwrap(), None);

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
    fn programs_without_a_loader_are_run_by_it_with_the_arguments_of_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let fixed = put(folder, "static", &elf(1), 0o755);
        if !LOADS_STATIC {
            assert!(matches!(check(&fixed), Err(ProgramError::Static(_))));
            return;
        }
        let arguments = |path: &Path| {
            let program = StaticProgram::at(path).unwrap();
            let all = program.loader_arguments(Path::new("/library"), OsStr::new("name"));
            assert_eq!(all[..2], ["--preload", "/library"]);
            assert_eq!(
                (&all[2], &all[3]),
                (&StaticProgram::STAND_IN.into(), &fixed.clone().into())
            );
            all[4..].to_vec()
        };
        assert_eq!(arguments(&fixed), ["name"]);
        let line = format!("#! {}  -x  y \nrest", fixed.display());
        let inner = put(folder, "inner", line.as_bytes(), 0o755);
        let line = format!("#!{}\n", inner.display());
        let outer = put(folder, "outer", line.as_bytes(), 0o755);
        let [path, inner, script] = [&fixed, &inner, &outer].map(|path| path.as_os_str());
        assert_eq!(arguments(Path::new(inner)), [path, OsStr::new("-x  y"), inner]);
        assert_eq!(arguments(&outer), [path, OsStr::new("-x  y"), inner, script]);
        let damaged = put(folder, "damaged", &elf(1)[..100], 0o755);
        assert_eq!(StaticProgram::at(&damaged), None);
    }

    #[test]
    fn programs_are_found_as_exec_finds_them() {
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert!(matches!(find(OsStr::new("no-such-program")), Err(ProgramError::NotFound(_))));
        assert!(matches!(find(OsStr::new("/")), Err(ProgramError::NotExecutable(_))));
    }
}
