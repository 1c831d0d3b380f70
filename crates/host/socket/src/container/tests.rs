//! Paths of control groups as runtimes make them.

use proptest::prelude::*;

use super::*;

const A: &str = "2227daf62df6694645fee5df53c1f91271546a9560e8600a525690ae252b7f63";
const B: &str = "7be92808767a667f35c8505cbf40d14e931ef6db5b0210329cf193b15ba9d605";
const UID: &str = "1d6f0f7e-4b5a-4c0e-9d3b-9b3c7a2f8e11";

/// A place in short: `RUNTIME ID[ in RUNTIME ID][ of NAMESPACE][ by USER][ pod UID][ unit UNIT]`.
fn described(path: &str) -> String {
    let id = |id: &str| id.replace(A, "A").replace(B, "B");
    let place = place(path.replace("$A", A).replace("$B", B).as_bytes());
    let mut parts = Vec::new();
    let containers = [("", &place.inner), ("in ", &place.outer)];
    for (word, found) in containers {
        if let Some(found) = found {
            let word = if place.inner.is_none() { "" } else { word };
            parts.push(format!("{word}{} {}", found.runtime, id(&found.id)));
        }
    }
    if let Some(outer) = &place.outer {
        parts.extend(outer.namespace.iter().map(|name| format!("of {name}")));
        parts.extend(outer.user.iter().map(|user| format!("by {user}")));
    }
    parts.extend(
        place
            .pod
            .iter()
            .map(|pod| format!("pod {}", pod.replace(UID, "UID"))),
    );
    parts.extend(place.unit.iter().map(|unit| format!("unit {unit}")));
    parts.join(" ")
}

/// Each path with the expected result.
fn check(cases: &[(&str, &str)]) {
    for (path, expected) in cases {
        let path = path
            .replace("$UID", UID)
            .replace("$U_ID", &UID.replace('-', "_"));
        assert_eq!(described(&path), *expected, "{path}");
    }
}

#[test]
fn docker() {
    check(&[
        ("/docker/$A", "docker A"),
        ("/$A", "unknown A"),
        ("/docker/$A/init", "docker A"),
        ("/system.slice/docker-$A.scope", "docker A"),
        (
            "/system.slice/docker-$A.scope/system.slice/nginx.service",
            "docker A unit nginx.service",
        ),
        ("/custom.slice/docker-$A.scope", "docker A"),
        ("/actions_job/$A", "unknown A of actions_job"),
        ("/system.slice/docker.service", "unit docker.service"),
        ("/system.slice/docker.socket", ""),
        ("/docker", ""),
        (
            "/docker/buildkit/oy5pu3djcqjhzgvjyrtyvyzvn",
            "buildkit oy5pu3djcqjhzgvjyrtyvyzvn",
        ),
        (
            "/system.slice/docker.service/docker/buildkit/oy5pu3djcq",
            "buildkit oy5pu3djcq",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-$A.scope",
            "docker A by 1000",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/docker/$A",
            "docker A by 1000",
        ),
        ("/ecs/0b69d5c0-d655-4695-98cd-5d2d526d9d5a/$A", "docker A"),
        ("/ecs/a1c2e3d4b5f60718293a4b5c6d7e8f90/$A", "docker A"),
    ]);
}

#[test]
fn containerd() {
    check(&[
        ("/default/$A", "containerd A of default"),
        ("/k8s.io/$A", "containerd A of k8s.io"),
        ("/moby/$A", "containerd A of moby"),
        ("/shop/$A", "unknown A of shop"),
        ("/system.slice/nerdctl-$A.scope", "containerd A"),
        (
            "/user.slice/user-1000.slice/user@1000.service/user.slice/nerdctl-$A.scope",
            "containerd A by 1000",
        ),
        (
            "/system.slice/containerd.service",
            "unit containerd.service",
        ),
        (
            "/ecs/e5dc0b3d8ee648d6b7f3a7a1c1d2e3f4/e5dc0b3d8ee648d6b7f3a7a1c1d2e3f4-3254583420",
            "containerd e5dc0b3d8ee648d6b7f3a7a1c1d2e3f4-3254583420",
        ),
    ]);
}

#[test]
fn podman() {
    check(&[
        ("/machine.slice/libpod-$A.scope", "podman A"),
        ("/machine.slice/libpod-$A.scope/container", "podman A"),
        ("/machine.slice/libpod-conmon-$A.scope", ""),
        ("/libpod_parent/libpod-$A", "podman A"),
        ("/libpod_parent/libpod-$A/container", "podman A"),
        ("/libpod_parent/conmon", ""),
        ("/libpod_parent/$B/libpod-$A", "podman A"),
        (
            "/machine.slice/machine-libpod_pod_$B.slice/libpod-$A.scope/container",
            "podman A",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-$A.scope/container",
            "podman A by 1000",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/user.slice/podman-4242.scope",
            "unit podman-4242.scope",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/user.slice/user-libpod_pod_$B.slice/libpod-$A.scope",
            "podman A by 1000",
        ),
        // Quadlet: the unit is the service.
        (
            "/system.slice/web.service/libpod-payload-$A",
            "podman A unit web.service",
        ),
        (
            "/system.slice/web.service/libpod-payload-$A/container",
            "podman A unit web.service",
        ),
        ("/system.slice/web.service/supervisor", "unit web.service"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service/libpod-payload-$A",
            "podman A by 1000 unit web.service",
        ),
    ]);
}

#[test]
fn kubernetes() {
    check(&[
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$U_ID.slice/cri-containerd-$A.scope",
            "containerd A pod UID",
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod$U_ID.slice/crio-$A.scope",
            "cri-o A pod UID",
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod$U_ID.slice/crio-$A.scope/container",
            "cri-o A pod UID",
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod$U_ID.slice/crio-conmon-$A.scope",
            "pod UID",
        ),
        (
            "/kubepods.slice/kubepods-pod$U_ID.slice/docker-$A.scope",
            "docker A pod UID",
        ),
        (
            "/kubepods.slice/kubepods-pod$U_ID.slice/cri-containerd-$A.scope",
            "containerd A pod UID",
        ),
        ("/kubepods/burstable/pod$UID/$A", "unknown A pod UID"),
        ("/kubepods/besteffort/pod$UID/$A", "unknown A pod UID"),
        ("/kubepods/pod$UID/$A", "unknown A pod UID"),
        ("/kubepods/besteffort/pod$UID/crio-$A", "cri-o A pod UID"),
        // Static pods have a hash for a UID.
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod08f4cf62d4b5f11d66b4ae28ae5f1e21.slice/cri-containerd-$A.scope",
            "containerd A pod 08f4cf62d4b5f11d66b4ae28ae5f1e21",
        ),
        // containerd with cgroupfs under a kubelet with systemd.
        (
            "/system.slice/containerd.service/kubepods-burstable-pod$U_ID.slice:cri-containerd:$A",
            "containerd A pod UID unit containerd.service",
        ),
        (
            "/kubepods-besteffort-pod$U_ID.slice:cri-containerd:$A",
            "containerd A pod UID",
        ),
        // OpenShift, and a kubelet that runs in a container.
        (
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod$U_ID.slice/cri-containerd-$A.scope",
            "containerd A pod UID",
        ),
        (
            "/kubelet/kubepods/besteffort/pod$UID/$A",
            "unknown A pod UID",
        ),
        ("/system.slice/kubelet.service", "unit kubelet.service"),
        // A pod's group and nothing in it.
        ("/kubepods/burstable/pod$UID", "pod UID"),
        // Names that only resemble one.
        ("/kubepods/podium/$A", "unknown A"),
        ("/pod$UID/x", ""),
        ("/system.slice/my-pod$U_ID.slice/x", ""),
    ]);
}

#[test]
fn nested() {
    check(&[
        // kind: the node is the host's container, the pod that of the kubelet in it.
        (
            "/system.slice/docker-$B.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod$U_ID.slice/cri-containerd-$A.scope",
            "containerd A in docker B",
        ),
        (
            "/docker/$B/kubelet/kubepods/besteffort/pod$UID/$A",
            "unknown A in docker B",
        ),
        ("/docker/$B/docker/$A", "docker A in docker B"),
        (
            "/kubepods.slice/kubepods-pod$U_ID.slice/cri-containerd-$B.scope/docker/$A",
            "docker A in containerd B pod UID",
        ),
        (
            "/lxc.payload.web/system.slice/docker-$A.scope",
            "docker A in lxc web",
        ),
        ("/lxc.payload.web/docker/$A", "docker A in lxc web"),
        // What runs in a container cannot take a user's or the host's place.
        (
            "/docker/$B/user.slice/user-7.slice/docker-$A.scope",
            "docker A in docker B",
        ),
    ]);
}

#[test]
fn lxc_and_machines() {
    check(&[
        ("/lxc/web", "lxc web"),
        (
            "/lxc/101/ns/system.slice/cron.service",
            "lxc 101 unit cron.service",
        ),
        ("/lxc/101/ns/init.scope", "lxc 101 unit init.scope"),
        ("/lxc.payload/web", "lxc web"),
        ("/lxc.payload.web", "lxc web"),
        (
            "/lxc.payload.user-1000_web/system.slice/ssh.service",
            "lxc user-1000_web unit ssh.service",
        ),
        ("/lxc.monitor.web", ""),
        ("/lxc.monitor/web", ""),
        ("/machine.slice/machine-web.scope", "nspawn web"),
        ("/machine.slice/machine-my\\x2dweb.scope", "nspawn my-web"),
        (
            "/machine.slice/machine-web.scope/payload/system.slice/nginx.service",
            "nspawn web unit nginx.service",
        ),
        (
            "/machine.slice/systemd-nspawn@web.service/payload",
            "nspawn web unit systemd-nspawn@web.service",
        ),
        (
            "/machine.slice/systemd-nspawn@my\\x2dweb.service/payload/init.scope",
            "nspawn my-web unit init.scope",
        ),
        (
            "/machine.slice/systemd-nspawn@web.service/supervisor",
            "unit systemd-nspawn@web.service",
        ),
        (
            "/machine.slice/machine-lxc\\x2d1234\\x2dweb.scope",
            "lxc web",
        ),
        (
            "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator",
            "unit machine-qemu\\x2d1\\x2dvm.scope",
        ),
    ]);
}

#[test]
fn units() {
    check(&[
        ("/", ""),
        ("", ""),
        ("/init.scope", "unit init.scope"),
        ("/system.slice/nginx.service", "unit nginx.service"),
        ("/../../system.slice/nginx.service", "unit nginx.service"),
        (
            "/system.slice/system-postgresql.slice/postgresql@15-main.service",
            "unit postgresql@15-main.service",
        ),
        (
            "/system.slice/system-getty.slice/getty@tty1.service",
            "unit getty@tty1.service",
        ),
        (
            "/system.slice/system-openvpn\\x2dclient.slice/openvpn-client@a\\x2db.service",
            "unit openvpn-client@a\\x2db.service",
        ),
        (
            "/user.slice/user-1000.slice/session-3.scope",
            "unit session-3.scope",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/init.scope",
            "unit init.scope",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-2971.scope",
            "unit app-gnome-firefox-2971.scope",
        ),
        (
            "/system.slice/systemd-udevd.service/udev",
            "unit systemd-udevd.service",
        ),
        ("/system.slice/run-u12.service", "unit run-u12.service"),
        (
            "/azure.slice/walinuxagent.service",
            "unit walinuxagent.service",
        ),
        ("/user/root/0", ""),
    ]);
}

#[test]
fn what_only_looks_like_an_id_is_none() {
    let upper = A.to_uppercase();
    check(&[
        (&format!("/docker/{upper}"), ""),
        (&format!("/docker/{}", &A[1..]), ""),
        (&format!("/docker/{A}0"), ""),
        (
            &format!("/system.slice/docker-{}.scope", &A[1..]),
            &format!("unit docker-{}.scope", &A[1..]),
        ),
    ]);
}

#[test]
fn odd_bytes_and_depth_do_no_harm() {
    let mut path = b"/a\xff\x1b[2J.service".to_vec();
    assert_eq!(place(&path).unit.unwrap(), r"a\xff\x1b[2J.service");
    path.splice(0..0, b"/x".repeat(2000));
    assert_eq!(place(&path).unit.unwrap(), r"a\xff\x1b[2J.service");
    let long = [b"/".as_slice(), &[b'u'; 4000], b".service"].concat();
    assert_eq!(place(&long).unit.unwrap().chars().count(), UNIT);
}

proptest! {
    #[test]
    fn any_path_is_bounded(path in "[-/.:a-f0-9_]{0,64}(docker-|/pod|\\.scope|\\.slice|lxc|/machine-|\\\\x2)[-/.:a-z\u{1b}é]{0,64}") {
        let place = place(path.as_bytes());
        for found in place.outer.iter().chain(&place.inner) {
            prop_assert!(found.id.chars().count() <= ID);
            prop_assert!(!found.id.chars().any(char::is_control));
        }
    }

    #[test]
    fn any_bytes_are_read(path in any::<Vec<u8>>()) {
        let _ = place(&path);
    }
}
