//! containerd and CRI-O, played by an HTTP/2 server.

use std::convert::Infallible;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;

use super::super::messages::*;
use super::*;

/// The answer to a call: gRPC's status and the body as sent.
type Reply = (&'static str, Vec<u8>);

/// Plays a runtime; `answer` gets method, containerd namespace and the requested id.
fn runtime<F>(answer: F) -> (TempDir, RuntimeConfig)
where
    F: Fn(&str, Option<&str>, &str) -> Reply + Clone + Send + Sync + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("s")).unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio.block_on(async {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer.clone();
                let service = service_fn(move |request| serve(request, answer.clone()));
                tokio::spawn(
                    http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
    });
    let config = RuntimeConfig {
        containerd: vec![folder.path().join("s")],
        ..nobody()
    };
    (folder, config)
}

async fn serve<F>(
    request: Request<Incoming>,
    answer: F,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, hyper::Error>
where
    F: Fn(&str, Option<&str>, &str) -> Reply,
{
    let (head, body) = request.into_parts();
    assert_eq!(head.headers["content-type"], "application/grpc");
    let body = body.collect().await?.to_bytes();
    let id = ById::decode(&body[5..]).unwrap().id;
    let namespace = head
        .headers
        .get("containerd-namespace")
        .map(|of| of.to_str().unwrap());
    let (status, bytes) = answer(&head.uri.path()[1..], namespace, &id);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    let frames = Full::new(Bytes::from(bytes)).with_trailers(async { Some(Ok(trailers)) });
    Ok(Response::new(frames))
}

fn framed(message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
    framed.extend(body);
    framed
}

fn status(id: &str) -> ContainerStatusResponse {
    ContainerStatusResponse {
        status: Some(ContainerStatus {
            id: id.into(),
            metadata: Some(ContainerMetadata { name: "app".into() }),
            image: Some(ImageSpec {
                image: "docker.io/library/nginx:1.27".into(),
            }),
            labels: labels(&[
                ("io.kubernetes.container.name", "app"),
                ("io.kubernetes.pod.name", "web-7d4b"),
                ("io.kubernetes.pod.namespace", "shop"),
                ("io.kubernetes.pod.uid", "1d6f"),
            ]),
        }),
    }
}

#[test]
fn cri_tells_name_image_and_pod() {
    for version in ["runtime.v1", "runtime.v1alpha2"] {
        let method = format!("{version}.RuntimeService/ContainerStatus");
        let (_folder, config) = runtime(move |called, namespace, id| {
            assert_eq!(namespace, None);
            if called == method {
                ("0", framed(&status(id)))
            } else {
                ("12", Vec::new())
            }
        });
        let names = query(config, &found(Runtime::Unknown)).unwrap();
        assert_eq!(names.runtime, Some(Runtime::Containerd));
        assert_eq!(names.name.as_deref(), Some("app"));
        assert_eq!(names.image.as_deref(), Some("docker.io/library/nginx:1.27"));
        assert_eq!(names.pod_name.as_deref(), Some("web-7d4b"));
        assert_eq!(names.pod_namespace.as_deref(), Some("shop"));
        assert_eq!(names.pod_uid.as_deref(), Some("1d6f"));
    }
}

#[test]
fn a_pods_own_container_has_the_pods_name() {
    let (_folder, config) = runtime(|called, _, id| match called {
        "runtime.v1.RuntimeService/PodSandboxStatus" => {
            let metadata = PodSandboxMetadata {
                name: "web-7d4b".into(),
                uid: "1d6f".into(),
                namespace: "shop".into(),
            };
            let status = PodSandboxStatus {
                id: id.into(),
                metadata: Some(metadata),
            };
            (
                "0",
                framed(&PodSandboxStatusResponse {
                    status: Some(status),
                }),
            )
        }
        _ => ("5", Vec::new()),
    });
    let names = query(config, &found(Runtime::Containerd)).unwrap();
    assert_eq!(names.name.as_deref(), Some("pod"));
    assert_eq!(names.pod_name.as_deref(), Some("web-7d4b"));
    assert_eq!(names.pod_namespace.as_deref(), Some("shop"));
}

#[test]
fn containerd_tells_of_its_other_namespaces() {
    for (from_path, asked) in [(Some("shop"), "shop"), (None, "default")] {
        let (_folder, config) = runtime(move |called, namespace, id| match called {
            "containerd.services.containers.v1.Containers/Get" if namespace == Some(asked) => {
                let container = ContainerdContainer {
                    id: id.into(),
                    labels: labels(&[("nerdctl/name", "web")]),
                    image: "docker.io/library/nginx:1.27".into(),
                };
                (
                    "0",
                    framed(&GetContainerResponse {
                        container: Some(container),
                    }),
                )
            }
            // A containerd without the plug-in for Kubernetes, like Docker's.
            _ => ("12", Vec::new()),
        });
        let mut found = found(Runtime::Containerd);
        found.namespace = from_path.map(str::to_owned);
        let names = query(config, &found).unwrap();
        assert_eq!(names.name.as_deref(), Some("web"));
        assert_eq!(names.image.as_deref(), Some("docker.io/library/nginx:1.27"));
    }
}

#[test]
fn what_no_service_knows_is_unknown() {
    for code in ["5", "2", "12", "13"] {
        let (_folder, config) = runtime(move |_, _, _| (code, Vec::new()));
        let mut found = found(Runtime::Containerd);
        assert_eq!(query(config.clone(), &found), Err(Fail::Unknown));
        found.namespace = Some("not\na header".into());
        assert_eq!(query(config, &found), Err(Fail::Unknown));
    }
}

#[test]
fn rubbish_in_grpc_is_not_believed() {
    let good = framed(&status(ID));
    let mut compressed = good.clone();
    compressed[0] = 1;
    let mut long = good.clone();
    long[1] = 0xff;
    let bodies = [
        Vec::new(),
        vec![0; 4],
        vec![0; 5],
        compressed,
        long,
        good[..good.len() - 1].to_vec(),
        [&[0, 0, 0, 0, 3][..], &[0xff; 3]].concat(),
        framed(&status(&ID.replace('2', "3"))),
        vec![0; 64 * 1024 * 1024],
    ];
    for body in bodies {
        let length = body.len();
        let (_folder, config) = runtime(move |_, _, _| ("0", body.clone()));
        let answer = query(config, &found(Runtime::Containerd));
        assert_eq!(answer, Err(Fail::Rubbish), "{length} bytes");
    }
}

#[test]
fn any_message_is_read() {
    use proptest::prelude::*;
    proptest!(|(bytes in any::<Vec<u8>>())| {
        let _ = ContainerStatusResponse::decode(&bytes[..]);
        let _ = PodSandboxStatusResponse::decode(&bytes[..]);
        let _ = GetContainerResponse::decode(&bytes[..]);
    });
}
