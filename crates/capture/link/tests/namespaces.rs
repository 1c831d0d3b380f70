//! Finding, numbering and entering network namespaces. Needs root and iproute2.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

use skua_link::{LinkSocket, Namespace, Namespaces};
use skua_testkit::{
    lab::{Net, root_tests, run, wait_until},
    process::Process,
};
use std::{os::unix::fs::MetadataExt as _, process::Command};

/// A process in an unnamed network namespace of its own.
struct Unnamed(Process);

impl Unnamed {
    fn start() -> Self {
        let process = Process::start(Command::new("unshare").args(["--net", "sleep", "600"]));
        let unnamed = Self(process);
        let own = Namespace::own().unwrap().id.inode;
        // unshare(1) first runs in our namespace.
        wait_until("namespace", || unnamed.inode() != own);
        unnamed
    }

    fn inode(&self) -> u64 {
        let path = format!("/proc/{}/ns/net", self.0.id());
        std::fs::metadata(path).unwrap().ino()
    }

    /// What the library calls its namespace.
    fn name(&self) -> String {
        format!("pid:{}", self.0.id())
    }
}

fn number_of(namespaces: &Namespaces, name: &str) -> Option<u16> {
    namespaces
        .list()
        .iter()
        .find(|ns| ns.name == name)
        .map(|ns| ns.number)
}

#[test]
fn our_own_needs_no_rights() {
    let namespaces = Namespaces::discover(false).unwrap();
    let [own] = namespaces.list() else {
        panic!("{namespaces:?}")
    };
    assert_eq!((own.number, own.name.as_str()), (0, ""));
    let links = own
        .enter(|| LinkSocket::open().unwrap().list().unwrap())
        .unwrap();
    assert!(links.iter().any(|link| link.is_loopback()));
}

#[test]
fn named_and_unnamed_are_found_once() {
    if !root_tests() {
        return;
    }
    let named = Net::bare();
    let unnamed = Unnamed::start();
    let namespaces = Namespaces::discover(true).unwrap();
    assert_eq!(namespaces.list()[0].number, 0);
    assert!(number_of(&namespaces, &named.name).is_some());
    assert!(number_of(&namespaces, &unnamed.name()).is_some());
    let mut ids: Vec<_> = namespaces.list().iter().map(|ns| ns.id).collect();
    let found = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), found);
    assert_eq!(namespaces.omitted(), 0);
}

#[test]
fn numbers_stay_and_the_dead_are_reported() {
    if !root_tests() {
        return;
    }
    let first = Net::bare();
    let mut namespaces = Namespaces::discover(true).unwrap();
    let number = number_of(&namespaces, &first.name).unwrap();

    let second = Net::bare();
    let unnamed = Unnamed::start();
    let changes = namespaces.refresh().unwrap();
    let second_number = number_of(&namespaces, &second.name).unwrap();
    let unnamed_number = number_of(&namespaces, &unnamed.name()).unwrap();
    assert!(changes.added.contains(&second_number) && changes.added.contains(&unnamed_number));
    assert_eq!(number_of(&namespaces, &first.name), Some(number));

    // The name goes, then the process: only then is the namespace gone.
    drop(second);
    drop(unnamed);
    let changes = namespaces.refresh().unwrap();
    assert!(changes.removed.contains(&second_number) && changes.removed.contains(&unnamed_number));
    assert!(namespaces.get(second_number).is_none());
    assert_eq!(number_of(&namespaces, &first.name), Some(number));

    let third = Net::bare();
    let changes = namespaces.refresh().unwrap();
    let third_number = number_of(&namespaces, &third.name).unwrap();
    assert!(changes.added.contains(&third_number));
    assert!(third_number > unnamed_number.max(second_number));
}

#[test]
fn a_namespace_that_gets_a_name_keeps_its_number() {
    if !root_tests() {
        return;
    }
    let unnamed = Unnamed::start();
    let mut namespaces = Namespaces::discover(true).unwrap();
    let number = number_of(&namespaces, &unnamed.name()).unwrap();
    let name = format!("{}attached", Net::prefix());
    let process = unnamed.0.id().to_string();
    run(Command::new("ip").args(["netns", "attach", &name, &process]));
    let guard = Net { name: name.clone() };
    let changes = namespaces.refresh().unwrap();
    assert!(changes.renamed.contains(&number));
    assert_eq!(namespaces.get(number).unwrap().name, name);
    drop(guard);
    assert!(namespaces.refresh().unwrap().renamed.contains(&number));
    assert_eq!(namespaces.get(number).unwrap().name, unnamed.name());
}

#[test]
fn entering_leaves_the_caller_where_it_is() {
    if !root_tests() {
        return;
    }
    let net = Net::bare();
    let before = Namespace::own().unwrap().id;
    let namespace = net.inside(Namespace::own).unwrap();
    let inside = namespace.enter(|| Namespace::own().unwrap().id).unwrap();
    assert_eq!(inside, namespace.id);
    assert_ne!(inside, before);
    assert_eq!(Namespace::own().unwrap().id, before);
    assert_eq!(skua_link::in_namespace(&namespace, || 7).unwrap(), 7);
}

#[test]
fn a_leftover_file_is_no_namespace() {
    if !root_tests() {
        return;
    }
    // The directory itself may not exist yet.
    let _keeps_directory = Net::bare();
    let name = format!("{}leftover", Net::prefix());
    let path = std::path::Path::new("/run/netns").join(&name);
    std::fs::write(&path, "").unwrap();
    let found = Namespaces::discover(true).map(|namespaces| number_of(&namespaces, &name));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(found.unwrap(), None);
}

#[test]
fn only_those_that_are_selected_are_held() {
    if !root_tests() {
        return;
    }
    let named = Net::bare();
    let other = Net::bare();
    let process = Unnamed::start();
    let (named_inode, process_inode) = (named.inode(), process.inode());
    let own = Namespace::own().unwrap().id.inode;

    let mut namespaces = Namespaces::selected().unwrap();
    assert_eq!(namespaces.list().len(), 1);
    assert_eq!(namespaces.refresh().unwrap(), Default::default());
    let changes = namespaces.select([own].into()).unwrap();
    assert_eq!(changes, Default::default());
    let changes = namespaces
        .select([named_inode, process_inode, 1].into())
        .unwrap();
    assert_eq!(changes.added.len(), 2);
    assert!(number_of(&namespaces, &other.name).is_none());
    let number = number_of(&namespaces, &named.name).unwrap();
    // One that stays keeps its number.
    let changes = namespaces.select([named_inode].into()).unwrap();
    assert_eq!((changes.added.len(), changes.removed.len()), (0, 1));
    assert_eq!(number_of(&namespaces, &named.name), Some(number));
    // One that is gone is reported.
    drop(named);
    assert_eq!(namespaces.refresh().unwrap().removed, [number]);
    assert_eq!(namespaces.list().len(), 1);
}
