//! The messages, with the field numbers of the specifications. Fields that this project never sends
//! (native histograms, exemplars) are absent; a decoder ignores them.

/// Remote write 2.0, package `io.prometheus.write.v2`.
pub mod v2 {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Request {
        /// Each string of the request once. The first one is empty.
        #[prost(string, repeated, tag = "4")]
        pub symbols: Vec<String>,
        #[prost(message, repeated, tag = "5")]
        pub timeseries: Vec<TimeSeries>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        /// Names and values of the labels in turn, sorted by name, as indices of
        /// [`Request::symbols`].
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        /// Samples, oldest first.
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
        /// Type, help and unit.
        #[prost(message, optional, tag = "5")]
        pub metadata: Option<Metadata>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(double, tag = "1")]
        pub value: f64,
        /// Milliseconds since the epoch.
        #[prost(int64, tag = "2")]
        pub timestamp: i64,
        /// When the counter started, in milliseconds since the epoch; 0 if unknown. Up to release
        /// candidate 3 (Prometheus 3.5) this was field 6 of the series, `created_timestamp`, which
        /// is reserved since and ignored here.
        #[prost(int64, tag = "3")]
        pub start_timestamp: i64,
    }

    /// What is known of a metric.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Metadata {
        /// Type, as in [`super::MessageMetricType`].
        #[prost(enumeration = "super::MessageMetricType", tag = "1")]
        pub r#type: i32,
        /// Help, as index of [`Request::symbols`].
        #[prost(uint32, tag = "3")]
        pub help_ref: u32,
        /// Unit, as index of [`Request::symbols`].
        #[prost(uint32, tag = "4")]
        pub unit_ref: u32,
    }
}

/// Remote write 1.0, package `prometheus`.
pub mod v1 {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct WriteRequest {
        #[prost(message, repeated, tag = "1")]
        pub timeseries: Vec<TimeSeries>,
        /// What is known of metric families. Prometheus, VictoriaMetrics, Cortex and Mimir accept
        /// this field; the specification of 1.0 reserves it.
        #[prost(message, repeated, tag = "3")]
        pub metadata: Vec<MetricMetadata>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        /// Labels, sorted by name.
        #[prost(message, repeated, tag = "1")]
        pub labels: Vec<Label>,
        /// Samples, oldest first.
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Label {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub value: String,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(double, tag = "1")]
        pub value: f64,
        /// Milliseconds since the epoch.
        #[prost(int64, tag = "2")]
        pub timestamp: i64,
    }

    /// What is known of a metric family.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct MetricMetadata {
        /// Type, as in [`super::MessageMetricType`].
        #[prost(enumeration = "super::MessageMetricType", tag = "1")]
        pub r#type: i32,
        /// Name of the family: of a histogram without `_bucket`, `_sum` and `_count`.
        #[prost(string, tag = "2")]
        pub metric_family_name: String,
        #[prost(string, tag = "4")]
        pub help: String,
        #[prost(string, tag = "5")]
        pub unit: String,
    }
}

/// Type of a metric; the same numbers in both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MessageMetricType {
    Unspecified = 0,
    Counter = 1,
    Gauge = 2,
    /// Classic histogram.
    Histogram = 3,
    GaugeHistogram = 4,
    Summary = 5,
    Info = 6,
    StateSet = 7,
}
