mod limits;
mod model;
mod subscribers;
