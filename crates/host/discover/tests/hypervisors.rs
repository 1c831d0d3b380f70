//! Domains of a real libvirt and a container of a real LXD, each in mounts of its own. Needs root, iproute2,
//! libvirt-daemon, libvirt-clients, lxd and QEMU.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

mod support;

use skua_discover::{DiscoveryConfig, InstanceSockets, InventoryConfig, LibvirtFolders};
use skua_testkit::{
    lab::{Net, root_tests},
    process::Process,
    untested,
};
use skua_topology::{Graph, Node, Value};
use std::{path::Path, process::Command, sync::Arc};
use support::{Lab, config, interface, layer2, nodes, text};

fn find(graph: &Graph, key: &str, value: &str) -> Option<Arc<Node>> {
    let has = |node: &Arc<Node>| {
        node.lookup(key)
            .is_some_and(|found| *found == Value::from(value))
    };
    nodes(graph).into_iter().find(has)
}

fn at(node: &Node, key: &str) -> String {
    match node.lookup(key).as_deref() {
        Some(Value::Str(text)) => text.to_string(),
        other => format!("{other:?}"),
    }
}

/// A daemon with folders of its own, and its command line within them.
struct Daemon {
    process: Process,
}

impl Daemon {
    /// Runs a script that says `ready` when it serves, and goes on.
    fn start(net: &Net, script: &str) -> Self {
        let mut command = net.command("unshare");
        command.args(["--mount", "--", "bash", "-ec", script]);
        let mut process = Process::start(&mut command);
        loop {
            if process.line() == "ready" {
                return Self { process };
            }
        }
    }

    /// A path as this process sees it.
    fn path(&self, path: &str) -> String {
        format!("/proc/{}/root{path}", self.process.id())
    }

    /// Has the script end, which ends the daemon.
    fn end(mut self) {
        self.process.write_line("");
        for _ in 0..600 {
            if !self.process.is_running() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the daemon does not end");
    }

    /// Runs a command in the daemon's mounts and network.
    fn run(&self, command: &str) {
        let target = self.process.id().to_string();
        let out = Command::new("nsenter")
            .args([
                "--target", &target, "--mount", "--net", "--", "bash", "-ec", command,
            ])
            .output()
            .unwrap();
        let said = [out.stdout, out.stderr].concat();
        assert!(
            out.status.success(),
            "{command}: {}",
            String::from_utf8_lossy(&said)
        );
    }
}

const LIBVIRT: &str = r#"
mount --make-rprivate /
for folder in /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do
    mkdir -p $folder; mount -t tmpfs tmpfs $folder
done
mkdir -p /run/libvirt/etc; cp -r /etc/libvirt/. /run/libvirt/etc; mount --bind /run/libvirt/etc /etc/libvirt
for file in passwd group; do
    cp /etc/$file /run/libvirt/$file
    grep -q ^libvirt-qemu: /etc/$file || echo "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/bin/false" >> /run/libvirt/$file
    mount --bind /run/libvirt/$file /etc/$file
done
echo 'libvirt-qemu:x:64055:' >> /etc/group
printf '%s\n' 'security_driver = "none"' 'user = "root"' 'group = "root"' 'stdio_handler = "file"' \
    'cgroup_controllers = [ ]' 'namespaces = [ ]' >> /etc/libvirt/qemu.conf
cat > /run/libvirt/shop.xml << 'END'
<domain type='qemu'><name>shop&amp;one</name><uuid>07bfc711-e7f3-442f-908d-3c6e7860aaab</uuid>
<memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64'>hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<interface type='ethernet'><mac address='52:54:00:11:22:33'/><target dev='ivshop'/><model type='virtio'/></interface>
</devices></domain>
END
setpriv --pdeathsig TERM libvirtd -p /run/libvirt/d.pid > /run/libvirt/log 2>&1 &
trap 'kill $(jobs -p); wait' EXIT
until virsh -c qemu:///system list > /run/libvirt/said 2>&1; do sleep 0.2; done
echo ready
read end
"#;

#[test]
fn domains_of_libvirt_are_nodes_with_their_taps() {
    if !root_tests() {
        return;
    }
    if !Path::new("/usr/sbin/libvirtd").exists() {
        return untested("libvirt", "domains of libvirt: there is no libvirtd");
    }
    let ns = Net::bare();
    let libvirt = Daemon::start(&ns, LIBVIRT);
    let lab = Lab::start(DiscoveryConfig {
        inventory: InventoryConfig {
            guests: true,
            ..InventoryConfig::default()
        },
        libvirt: LibvirtFolders {
            status: libvirt.path("/run/libvirt/qemu").into(),
            definitions: libvirt.path("/etc/libvirt/qemu").into(),
        },
        ..config()
    });
    lab.until_followed(&ns.name);
    let virsh = |words: &str| libvirt.run(&format!("virsh -c qemu:///system {words}"));
    let uuid = "07bfc711-e7f3-442f-908d-3c6e7860aaab";
    let in_state = |state: &str| {
        lab.until(&format!("the domain {state}"), |graph| {
            let node = find(graph, "UUID", uuid)?;
            (at(&node, "State") == state).then_some(node)
        })
    };
    virsh("define /run/libvirt/shop.xml");
    let defined = in_state("DOWN");
    assert_eq!(text(&defined.metadata, "Name"), "shop&one");
    assert_eq!(text(&defined.metadata, "Type"), "libvirt");
    assert!(defined.lookup("PID").is_none());
    virsh(&format!("start {uuid}"));
    let running = in_state("UP");
    assert_eq!(running.id, defined.id, "it is the same domain");
    let tap = lab.until("what libvirt says of the tap", |graph| {
        let tap = interface(graph, &ns.name, "ivshop")?;
        let held = layer2(graph, &tap.id)
            .iter()
            .any(|(_, child, _)| child == "shop&one");
        (held && tap.lookup("Libvirt").is_some()).then_some(tap)
    });
    for (key, value) in [
        ("Libvirt.MAC", "52:54:00:11:22:33"),
        ("Libvirt.Domain", "shop&one"),
        ("Libvirt.BusType", "pci"),
        ("Libvirt.Alias", "net0"),
        ("PeerIntfMAC", "52:54:00:11:22:33"),
    ] {
        assert_eq!(at(&tap, key), value, "{key}");
    }
    assert!(at(&tap, "Libvirt.BusInfo").starts_with("0000:00:"));
    let pid = running.lookup("PID").and_then(|pid| pid.as_int()).unwrap();
    let executable = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(executable.to_str().unwrap(), at(&running, "Executable"));
    let kinds = nodes(&lab.graph.read());
    let same = |node: &&Arc<Node>| at(node, "Name") == "shop&one";
    assert_eq!(
        kinds.iter().filter(same).count(),
        1,
        "one node of one machine"
    );
    virsh(&format!("suspend {uuid}"));
    in_state("PAUSED");
    virsh(&format!("destroy {uuid}"));
    let stopped = in_state("DOWN");
    assert_eq!(stopped.id, defined.id);
    virsh(&format!("undefine {uuid}"));
    lab.until("its end", |graph| {
        find(graph, "UUID", uuid).is_none().then_some(())
    });
    libvirt.end();
}

const LXD: &str = r#"
mount --make-rprivate /
for folder in /var/lib/lxd /var/log/lxd /var/cache/lxd /run/lxd /run/lxc; do
    mkdir -p $folder; mount -t tmpfs tmpfs $folder
done
setpriv --pdeathsig TERM lxd --logfile /run/lxd/log > /run/lxd/out 2>&1 &
trap 'kill $(jobs -p); wait' EXIT
lxd waitready --timeout 60
mkdir -p /run/lxd/image/rootfs/{bin,sbin,dev,proc,sys,etc,tmp,run}
cp /bin/busybox /run/lxd/image/rootfs/bin/
printf '#!/bin/busybox sh\nexec /bin/busybox sleep 600\n' > /run/lxd/image/rootfs/sbin/init
chmod +x /run/lxd/image/rootfs/sbin/init
printf 'architecture: x86_64\ncreation_date: 1700000000\nproperties: {description: of the test}\n' > /run/lxd/image/metadata.yaml
tar -C /run/lxd/image -czf /run/lxd/image.tgz metadata.yaml rootfs
lxc storage create pool dir
lxc profile device add default root disk path=/ pool=pool
lxc image import /run/lxd/image.tgz --alias one
lxc project create blue -c features.images=false -c features.profiles=false
echo ready
read end
lxc delete -f NAME --project blue 2> /dev/null || true
"#;

#[test]
fn containers_of_lxd_have_their_settings() {
    if !root_tests() {
        return;
    }
    if !Path::new("/usr/bin/lxd").exists() || !Path::new("/bin/busybox").exists() {
        return untested("lxd", "containers of LXD: there is no lxd or no busybox");
    }
    let ns = Net::bare();
    let name = format!("iv{}", std::process::id());
    let lxd = Daemon::start(&ns, &LXD.replace("NAME", &name));
    let lab = Lab::start(DiscoveryConfig {
        inventory: InventoryConfig {
            containers: true,
            ..InventoryConfig::default()
        },
        instances: InstanceSockets {
            lxd: vec![lxd.path("/var/lib/lxd/unix.socket").into()],
            incus: Vec::new(),
        },
        ..config()
    });
    lxd.run(&format!(
        "lxc init one {name} --project blue -c security.privileged=true -c limits.processes=100 \
         -c user.password=hidden; lxc start {name} --project blue"
    ));
    let node = lab.until("the container with its settings", |graph| {
        let node = find(graph, "Container.ID", &format!("blue_{name}"))?;
        node.lookup("LXD").is_some().then_some(node)
    });
    for (key, value) in [
        ("Name", &*name),
        ("Manager", "lxd"),
        ("Container.Image", "of the test"),
        ("LXD.Status", "Running"),
        ("LXD.Project", "blue"),
        ("LXD.Architecture", "x86_64"),
        ("LXD.Ephemeral", "false"),
        ("LXD.Config.limits.processes", "100"),
        ("LXD.Devices.root.path", "/"),
    ] {
        assert_eq!(at(&node, key), value, "{key}");
    }
    assert!(!format!("{:?}", node.metadata).contains("hidden"));
    lxd.run(&format!("lxc delete -f {name} --project blue"));
    lab.until("its end", |graph| {
        find(graph, "@ID", &node.id).is_none().then_some(())
    });
    lxd.end();
}
