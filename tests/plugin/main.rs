//! The product and real guests without a cluster: what it says of files, and with which exit code.

mod compiling;
mod files;
mod kubeconfigs;
mod readme;
