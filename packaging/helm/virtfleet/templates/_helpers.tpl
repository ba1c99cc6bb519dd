{{/* Settings of the collector, as text: files/collector.yaml, with the value `config` merged into it. */}}
{{- define "virtfleet.settings" -}}
{{- $text := tpl (.Files.Get "files/collector.yaml") . | trim -}}
{{- $settings := fromYaml $text -}}
{{- with $settings.Error }}{{ fail (printf "files/collector.yaml: %s" .) }}{{ end -}}
{{- $changes := include "virtfleet.changes" . | fromYaml -}}
{{- if $changes -}}
{{- mergeOverwrite $settings $changes | toYaml -}}
{{- else -}}
{{- $text -}}
{{- end -}}
{{- end -}}

{{/* Changes to files/collector.yaml: those that other values imply, and the value `config`. */}}
{{- define "virtfleet.changes" -}}
{{- $changes := dict -}}
{{- if .Values.ingest.enabled -}}
{{- $_ := set $changes "ingest" dict -}}
{{- end -}}
{{- with .Values.watchNamespaces -}}
{{- $_ := set $changes "inventory" (dict "cluster" (dict "namespaces" .)) -}}
{{- end -}}
{{- if .Values.authority.certManager.enabled -}}
{{- $_ := set $changes "enrolment" (dict "agentsSecret" "virtfleet-agents-ca" "clientsSecret" "virtfleet-clients-ca") -}}
{{- end -}}
{{- $_ := include "virtfleet.queueChanges" . | fromYaml | mergeOverwrite $changes -}}
{{- mergeOverwrite $changes (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{/*
Limits of the queues that the size of their volume implies: ten elevenths of it, which is 20 GiB of
the default 22 GiB. The rest is for the files' own overhead. Only if the settings have `mla`.
*/}}
{{- define "virtfleet.queueChanges" -}}
{{- $volume := .Values.mla.queue.persistence -}}
{{- if and $volume.enabled (hasKey .Values.config "mla") -}}
{{- $unit := get (dict "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) (regexFind "[A-Z]i$" $volume.size) -}}
{{- $bytes := mul (regexFind "^[0-9]+" $volume.size | int64) $unit -}}
{{- if lt $bytes 33554432 -}}
{{- fail (printf "mla.queue.persistence.size is %s: the queues need a volume of at least 32Mi" $volume.size) -}}
{{- end -}}
{{- $given := dig "queue" "maxBytes" 0 (.Values.config.mla | default dict) | int64 -}}
{{- if ge $given $bytes -}}
{{- fail (printf "config.mla.queue.maxBytes is %d, and mla.queue.persistence.size is %s (%d bytes): make the volume larger than the queues" $given $volume.size $bytes) -}}
{{- end -}}
{{- $limit := div (mul $bytes 10) 11 -}}
{{- $queue := dict "maxBytes" $limit -}}
{{- /* The default of one stream's limit is 1 GiB, and it must not be above that of all. */ -}}
{{- if lt (min $limit ($given | default $limit)) 1073741824 -}}
{{- $_ := set $queue "maxBytesPerStream" (min $limit ($given | default $limit)) -}}
{{- end -}}
{{- dict "mla" (dict "queue" $queue) | toYaml -}}
{{- end -}}
{{- end -}}

{{/* The kind of the object that runs the collectors. */}}
{{- define "virtfleet.workload" -}}
{{- if .Values.mla.queue.persistence.enabled }}StatefulSet{{ else }}Deployment{{ end -}}
{{- end -}}

{{/* Requests and limits: those of the size, and the value `resources` merged into them. */}}
{{- define "virtfleet.resources" -}}
{{- $sizes := dict
  "small" (dict "requests" (dict "cpu" "100m" "memory" "128Mi") "limits" (dict "memory" "384Mi"))
  "medium" (dict "requests" (dict "cpu" "250m" "memory" "384Mi") "limits" (dict "memory" "768Mi"))
  "large" (dict "requests" (dict "cpu" "1" "memory" "1536Mi") "limits" (dict "memory" "2304Mi")) -}}
{{- mergeOverwrite (deepCopy (get $sizes .Values.size)) (deepCopy .Values.resources) | toYaml -}}
{{- end -}}

{{/* The TLS settings of prometheus-operator's objects. */}}
{{- define "virtfleet.scrapeTls" -}}
{{- $secret := .Values.monitoring.clientSecret -}}
ca: { secret: { name: {{ $secret }}, key: ca.crt } }
cert: { secret: { name: {{ $secret }}, key: tls.crt } }
keySecret: { name: {{ $secret }}, key: tls.key }
serverName: virtfleet-collector.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The image of collector and relay: by digest, else by tag, else as it is named. */}}
{{- define "virtfleet.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else if .tag }}{{ .repository }}:{{ .tag }}{{ else }}{{ .repository }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Who may connect to the metrics: the pods of Prometheus. A peer of a NetworkPolicy. */}}
{{- define "virtfleet.prometheusPeer" -}}
- namespaceSelector:
    matchLabels: { kubernetes.io/metadata.name: {{ .Values.networkPolicy.prometheus.namespace }} }
  podSelector:
    matchLabels:
      {{- toYaml .Values.networkPolicy.prometheus.podLabels | nindent 6 }}
{{- end -}}

{{/* Labels of prometheus-operator's objects, by which a Prometheus selects them. */}}
{{- define "virtfleet.monitoringLabels" -}}
app.kubernetes.io/name: virtfleet-collector
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "virtfleet.monitoringNamespace" -}}
{{ .Values.monitoring.namespace | default .Release.Namespace }}
{{- end -}}
