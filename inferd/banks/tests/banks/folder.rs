//! The real file system.

use crate::support::{GEOMETRY, find, identity, options, quarantined, restore, save, text, transcript};
use ds4_banks::{Disk, Folder, FolderError, NotSaved, Store};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn open(path: &Path) -> Arc<Store> {
    Store::open(Box::new(Folder::open(path).unwrap()), &identity(), GEOMETRY, options(1 << 30)).unwrap()
}

fn subfolder(path: &Path) -> std::path::PathBuf {
    path.join(identity().digest().folder())
}

fn file_of(path: &Path, notation: &str) -> std::path::PathBuf {
    subfolder(path).join(format!("{}.kv", ds4_banks::Name::of_text(transcript(notation).text())))
}

#[test]
fn files_and_folders_are_for_their_owner_only() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("a/b");
    save(&open(&path), "<1 abcdef").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&subfolder(&path)), 0o700);
    assert_eq!(mode(&file_of(&path, "<1 abcdef")), 0o600);
}

#[test]
fn a_folder_that_others_may_open_is_refused_with_the_remedy() {
    let temporary = tempfile::tempdir().unwrap();
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let error = Folder::open(temporary.path()).err().unwrap();
    assert!(matches!(error, FolderError::Mode { mode: 0o755, .. }));
    assert!(error.to_string().contains("chmod 700"));
}

#[test]
fn links_are_not_followed() {
    let temporary = tempfile::tempdir().unwrap();
    let (real, kept) = (temporary.path().join("real"), temporary.path().join("kept.kv"));
    save(&open(&real), "<1 abcdef").unwrap();
    let file = file_of(&real, "<1 abcdef");
    fs::rename(&file, &kept).unwrap();
    symlink(&kept, &file).unwrap();
    assert!(find(&open(&real), "<1 abcdefg").is_none());
    let link = temporary.path().join("link");
    symlink(&real, &link).unwrap();
    assert!(matches!(Folder::open(&link), Err(FolderError::Io { action: "open", .. })));
    let folder = subfolder(&real);
    fs::remove_dir_all(&folder).unwrap();
    symlink(temporary.path(), &folder).unwrap();
    let disk = Box::new(Folder::open(&real).unwrap());
    assert!(Store::open(disk, &identity(), GEOMETRY, options(1 << 20)).is_err());
}

#[test]
fn of_two_processes_the_first_writes_and_the_second_takes_over() {
    let temporary = tempfile::tempdir().unwrap();
    let first = open(&temporary.path().join("kv"));
    save(&first, "<1 abcdef").unwrap();
    let second = open(&temporary.path().join("kv"));
    assert!(restore(&second, "<1 abcdefg").is_some(), "reading is for everybody");
    assert!(matches!(save(&second, "<1 xyz"), Err(NotSaved::ReadOnly)));
    save(&first, "<1 later").unwrap();
    drop(first);
    save(&second, "<1 xyz").unwrap();
    assert!(restore(&second, "<1 later <2").is_some(), "what the first one wrote meanwhile is known");
}

#[test]
fn leftovers_are_removed_and_strangers_left_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("kv");
    save(&open(&path), "<1 abcdef").unwrap();
    let foreign = "0123456789012345678901234567890123456789.kv";
    let published = "1123456789012345678901234567890123456789.kv";
    fs::write(subfolder(&path).join(format!("{foreign}.tmp")), b"half").unwrap();
    fs::write(subfolder(&path).join("notes.txt"), b"mine").unwrap();
    fs::write(subfolder(&path).join(foreign), b"DS4G and so on, much longer than any header of fifty-two bytes")
        .unwrap();
    fs::write(subfolder(&path).join(published), [b"KVC\x01\x02".as_slice(), &[0; 100]].concat()).unwrap();
    fs::write(path.join(foreign), b"of another program").unwrap();
    let store = open(&path);
    assert_eq!((store.stats().files, quarantined(&store)), (1, 0));
    let mut left: Vec<String> = fs::read_dir(subfolder(&path))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.retain(|name| name != "identity" && !file_of(&path, "<1 abcdef").ends_with(name));
    left.sort();
    assert_eq!(left, [foreign, published, "notes.txt"]);
    assert!(path.join(foreign).exists());
}

#[test]
fn ten_thousand_files_are_indexed_quickly() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("kv");
    drop(open(&path));
    // Written in memory, then put there without waiting ten thousand times for the disk.
    let memory = crate::support::disk::MemDisk::new();
    let store = crate::support::open(memory.clone(), 1 << 30);
    for number in 0..10_000_u64 {
        save(&store, &format!("<{} <{} {}", number % 100, number / 100, text(number, 20))).unwrap();
    }
    for (name, bytes) in memory.contents() {
        fs::write(subfolder(&path).join(name), bytes).unwrap();
    }
    let began = Instant::now();
    let store = open(&path);
    println!("{} files indexed in {} ms", store.stats().files, began.elapsed().as_millis());
    assert_eq!(store.stats().files, 10_000);
    let began = Instant::now();
    let found = find(&store, &format!("<7 <42 {} <1", text(4207, 20))).unwrap();
    println!("found among them in {} us", began.elapsed().as_micros());
    assert_eq!(found.tokens, 22);
}

#[test]
fn the_disk_is_what_the_store_expects_of_one() {
    let temporary = tempfile::tempdir().unwrap();
    let disk = Folder::open(&temporary.path().join("kv")).unwrap();
    disk.make_folder("f").unwrap();
    disk.make_folder("f").unwrap();
    disk.create("f", "a").unwrap().write_all(b"one").unwrap();
    assert_eq!(disk.create("f", "a").err().unwrap().kind(), std::io::ErrorKind::AlreadyExists);
    disk.rename("f", "a", "b").unwrap();
    disk.sync("f").unwrap();
    disk.touch("f", "b").unwrap();
    let facts = disk.files("f").unwrap();
    assert_eq!((facts.len(), facts[0].name.as_str(), facts[0].len), (1, "b", 3));
    let mut bytes = [0; 3];
    let file = disk.open("f", "b").unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"one");
    assert_eq!(file.read_exact_at(&mut bytes, 1).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    disk.remove("f", "b").unwrap();
    assert_eq!(disk.open("f", "b").err().unwrap().kind(), std::io::ErrorKind::NotFound);
    assert!(disk.open("f", "../../etc/passwd").is_err() || !Path::new("/etc/passwd").exists());
    assert!(disk.free().unwrap().1.0 > 0);
}
