//! The memory that the control group of this process may take: in a container or a systemd unit
//! often less than the machine has.

use std::path::{Path, PathBuf};

/// Limits above this are none: version 1 gives a number in any case.
const NO_LIMIT: u64 = 1 << 60;

/// The limit of memory of a control group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// The file that holds it.
    pub file: PathBuf,
}

impl MemoryLimit {
    /// The lowest limit of the groups that this process belongs to, if there is any.
    pub fn of_this_process() -> Option<Self> {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let groups = read(Path::new("/proc/self/cgroup"))?;
        let mounts = read(Path::new("/proc/self/mountinfo"))?;
        lowest(&groups, &mounts, read)
    }
}

/// The lowest limit, by the contents of the two files of `/proc`, and a function that reads files.
fn lowest(
    groups: &str,
    mounts: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<MemoryLimit> {
    let limits = mounts.lines().filter_map(Hierarchy::of_mount).flat_map(|hierarchy| {
        let files = hierarchy.limit_files(groups);
        files.into_iter().filter_map(|file| {
            let bytes = read(&file)?.trim().parse().ok().filter(|&bytes| bytes < NO_LIMIT)?;
            Some(MemoryLimit { bytes, file })
        })
    });
    limits.min_by_key(|limit| limit.bytes)
}

/// A mounted hierarchy of groups that limits memory.
struct Hierarchy<'a> {
    is_version_2: bool,
    /// The group that is mounted, and where.
    root: &'a Path,
    point: &'a Path,
}

impl<'a> Hierarchy<'a> {
    /// The hierarchy in a line of `mountinfo`.
    fn of_mount(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (Path::new(mount.next()?), Path::new(mount.next()?));
        let mut filesystem = filesystem.split(' ');
        let is_version_2 = match filesystem.next()? {
            "cgroup2" => true,
            "cgroup" if filesystem.nth(1)?.split(',').any(|option| option == "memory") => false,
            _ => return None,
        };
        Some(Self { is_version_2, root, point })
    }

    /// The files with the limits of this process's group, and of all groups that contain it.
    fn limit_files(&self, groups: &str) -> Vec<PathBuf> {
        let Some(group) = groups.lines().find_map(|line| self.group_in(line)) else {
            return vec![];
        };
        // In a container the group may lie outside of what is mounted: then that is all it has.
        let below = group.strip_prefix(self.root).unwrap_or(Path::new(""));
        let name = if self.is_version_2 { "memory.max" } else { "memory.limit_in_bytes" };
        below.ancestors().map(|group| self.point.join(group).join(name)).collect()
    }

    /// The path of the group in a line of `/proc/self/cgroup`, if that is of this hierarchy.
    fn group_in<'b>(&self, line: &'b str) -> Option<&'b Path> {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_this = if self.is_version_2 {
            number == "0" && controllers.is_empty()
        } else {
            controllers.split(',').any(|controller| controller == "memory")
        };
        is_this.then_some(Path::new(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
    const VERSION_1: &str = "35 31 0:32 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n\
                             36 31 0:33 / /cg/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu";

    fn limit(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<(u64, String)> {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, contents)| (*contents).to_owned())
        };
        let limit = lowest(groups, mounts, read)?;
        Some((limit.bytes, limit.file.display().to_string()))
    }

    #[test]
    fn the_lowest_limit_of_a_group_and_its_ancestors_counts() {
        let files = [
            ("/sys/fs/cgroup/a.slice/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a.slice/b.service/memory.max", "max\n"),
            ("/sys/fs/cgroup/other/memory.max", "1\n"),
        ];
        let expected = Some((1000, "/sys/fs/cgroup/a.slice/memory.max".to_owned()));
        assert_eq!(limit("0::/a.slice/b.service\n", VERSION_2, &files), expected);
        assert_eq!(limit("0::/none\n", VERSION_2, &files), None);
        assert_eq!(limit("", VERSION_2, &files), None);
    }

    #[test]
    fn version_1_is_understood_beside_version_2() {
        let groups = "4:memory,hugetlb:/docker/7\n3:cpu:/x\n0::/\n";
        let mounts = format!("{VERSION_1}\n{VERSION_2}");
        let no_limit = ("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let files = [no_limit, ("/cg/memory/docker/7/memory.limit_in_bytes", "4096\n")];
        let expected = Some((4096, "/cg/memory/docker/7/memory.limit_in_bytes".to_owned()));
        assert_eq!(limit(groups, &mounts, &files), expected);
        assert_eq!(limit(groups, &mounts, &files[..1]), None);
    }

    #[test]
    fn in_a_container_the_mounted_group_counts() {
        let mounts = "30 23 0:26 /docker/7 /sys/fs/cgroup ro - cgroup2 cgroup rw";
        let files = [("/sys/fs/cgroup/memory.max", "77")];
        for group in ["0::/docker/7", "0::/", "0::/../.."] {
            let expected = Some((77, "/sys/fs/cgroup/memory.max".to_owned()));
            assert_eq!(limit(group, mounts, &files), expected, "{group}");
        }
    }

    #[test]
    fn the_limit_of_this_process_is_read() {
        if let Some(limit) = MemoryLimit::of_this_process() {
            let text = std::fs::read_to_string(limit.file).unwrap();
            assert_eq!(text.trim(), limit.bytes.to_string());
        }
    }
}
