//! Messages of `runtime.v1` (Kubernetes' cri-api) and `containerd.services.containers.v1`, with the
//! fields that we read.

use std::collections::HashMap;

use prost::Message;

/// `ContainerStatusRequest` and `PodSandboxStatusRequest`, and containerd's `GetContainerRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ById {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatus {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "8")]
    pub(super) image: Option<ImageSpec>,
    #[prost(map = "string, string", tag = "12")]
    pub(super) labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(super) image: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<PodSandboxStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxStatus {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<PodSandboxMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
}

/// `containerd.services.containers.v1.GetContainerResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GetContainerResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) container: Option<ContainerdContainer>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerdContainer {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(map = "string, string", tag = "2")]
    pub(super) labels: HashMap<String, String>,
    #[prost(string, tag = "3")]
    pub(super) image: String,
}
