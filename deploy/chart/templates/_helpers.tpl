{{- /* The name of the host, ServiceAccount, roles and Lease. */ -}}
{{- define "innkeeper.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- /* Labels with which Deployment, Service and policies select the Pods. They never change. */ -}}
{{- define "innkeeper.selector" -}}
app.kubernetes.io/name: innkeeper
app.kubernetes.io/instance: {{ include "innkeeper.name" . }}
{{- end -}}

{{- define "innkeeper.labels" -}}
{{ include "innkeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "innkeeper.image" -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* A role binding for the host's account. Takes a dictionary: root, kind, name, namespace. */ -}}
{{- define "innkeeper.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "innkeeper.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ include "innkeeper.name" .root }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- /* The affinity that keeps Pods off nodes with another one. Without Required, a cluster with one node still runs all. */ -}}
{{- define "innkeeper.antiAffinity" -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "innkeeper.selector" . | fromYaml)) -}}
{{- if eq .Values.podAntiAffinity "Required" -}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
  - {{- toYaml $term | nindent 4 }}
{{- else if eq .Values.podAntiAffinity "Preferred" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      {{- toYaml $term | nindent 6 }}
{{- end -}}
{{- end -}}

{{- /* The names of all Leases, as a JSON list: that of the first shard, those of the others, and the one that asks for a shard. */ -}}
{{- define "innkeeper.leases" -}}
{{- $name := include "innkeeper.name" . -}}
{{- $leases := list $name -}}
{{- range untilStep 1 (int .Values.shards) 1 -}}
{{- $leases = append $leases (printf "%s.%d" $name .) -}}
{{- end -}}
{{- if gt (int .Values.shards) 1 -}}
{{- $leases = append $leases (printf "%s.next" $name) -}}
{{- end -}}
{{- toJson $leases -}}
{{- end -}}

{{- /* The scheme for probes and scrapers. The kubelet does not verify the certificate. */ -}}
{{- define "innkeeper.scheme" -}}
{{- if .Values.metrics.secure -}}
scheme: HTTPS
{{- end -}}
{{- end -}}

{{- /* The Secret with the certificate, if any. */ -}}
{{- define "innkeeper.certificate" -}}
{{- if .Values.metrics.secure -}}
{{- .Values.metrics.certificateSecret -}}
{{- end -}}
{{- end -}}
