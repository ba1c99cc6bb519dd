{{/* What machines get beside the binary: `kind: Delivery`, as text. */}}
{{- define "virtfleet-gardener.delivery" -}}
{{- $delivery := dict -}}
{{- if .Values.fleetCA -}}
{{- $_ := set $delivery "tls" (dict "enrolment" true "clientCA" "fleet-ca.crt") -}}
{{- end -}}
{{- $_ := mergeOverwrite $delivery (deepCopy .Values.delivery) -}}
{{- $named := dig "settings" "server" "tls" dict $delivery -}}
{{- if not (or $delivery.tls $named) -}}
{{- fail "fleetCA is empty: set it to the text of /api/v1/ca/clients.pem (--set-file fleetCA=clients.pem), or set delivery.settings.server.tls if the machines have certificates" -}}
{{- end -}}
{{- $_ := set $delivery "apiVersion" "virtfleet.io/v1alpha1" -}}
{{- $_ := set $delivery "kind" "Delivery" -}}
{{- toYaml $delivery -}}
{{- end -}}

{{/* The collector's image: by digest, else by tag, else as it is named. */}}
{{- define "virtfleet-gardener.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else if .tag }}{{ .repository }}:{{ .tag }}{{ else }}{{ .repository }}{{ end -}}
{{- end -}}
{{- end -}}
