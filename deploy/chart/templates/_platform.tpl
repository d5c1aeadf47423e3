{{- /* The platform's settings: those that follow from other values, then the user's own. */ -}}
{{- define "slipway.platform" -}}
{{- $volumes := dict .Values.volumes.durable.path .Values.volumes.durable.claim .Values.volumes.nvme.path .Values.volumes.nvme.claim -}}
{{- $cluster := dict
  "image" .Values.images.trainer
  "pull_policy" .Values.images.pullPolicy
  "namespace" .Values.training.namespace
  "user" .Values.user
  "service_account" (printf "%s-trainer" .Release.Name)
  "network_policy" .Values.network.enabled
  "volumes" $volumes -}}
{{- $ours := include "slipway.patch" . | fromYaml -}}
{{- $theirs := .Values.platform.cluster -}}
{{- $environment := merge (dict) ($theirs.environment | default dict) (include "slipway.objectStoreEnvironment" . | fromYaml) -}}
{{- if .Values.metrics.enabled }}{{ $environment = merge $environment (dict "SLIPWAY_METRICS_PORT" (include "slipway.jobMetricsPort" .)) }}{{ end }}
{{- range $list := list "containers" "volumes" "imagePullSecrets" }}
{{- if and (dig "spec" $list "" $ours) (dig "patch" "spec" $list "" $theirs) }}{{ fail (printf "platform.cluster.patch: found spec.%s, expected none: the chart writes this list itself (pull secrets, the Secrets of the object store and of checkpoints); use the patch of a recipe instead" $list) }}{{ end }}
{{- end }}
{{- $patch := merge (dict) ($theirs.patch | default dict) $ours -}}
{{- $uri := .Values.platform.tracking.uri -}}
{{- $secret := .Values.platform.tracking.secret -}}
{{- if and $uri $secret }}{{ fail "platform.tracking: found uri and secret, expected only one of them; remove one" }}{{ end }}
{{- if and .Values.mlflow.enabled (or $uri $secret) }}{{ fail "platform.tracking.uri: found a value while mlflow.enabled is true, expected only one of them; remove one" }}{{ end }}
{{- if not (or .Values.mlflow.enabled $uri $secret) }}{{ fail "platform.tracking.uri: found none, expected the address of your MLflow server, since mlflow.enabled is false" }}{{ end -}}
slipway: platform/1
{{- with .Values.platform.revision }}
revision: {{ . | quote }}
{{- end }}
{{- with include "slipway.userHeader" . }}
user_header: {{ . }}
{{- end }}
{{- range $role := list "operators" "promoters" }}
{{- with index $.Values.identity $role }}
{{ $role }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
tiers: {{- merge (dict "durable" .Values.volumes.durable.path "nvme" .Values.volumes.nvme.path) .Values.platform.tiers | toYaml | nindent 2 }}
{{- if $secret }}
tracking: {uri_file: /secrets/tracking/uri}
{{- else }}
tracking:
  uri: {{ $uri | default (printf "http://%s-mlflow:5000" .Release.Name) }}
  {{- if and .Values.mlflow.enabled .Values.identity.secret }}
  token_file: /secrets/identity/token
  {{- end }}
{{- end }}
{{- $pages := merge (dict) .Values.platform.pages }}
{{- range $page, $host := dict "dagster" .Values.identity.hosts.webserver "mlflow" .Values.identity.hosts.mlflow }}
{{- if and $host (not (hasKey $pages $page)) }}{{ $_ := set $pages $page (printf "https://%s" $host) }}{{ end }}
{{- end }}
{{- range $section := list "prices" "teams" "notifications" "openlineage" }}
{{- with index $.Values.platform $section }}
{{ $section }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $pages }}
pages: {{- toYaml . | nindent 2 }}
{{- end }}
compute:
  launcher: {{ .Values.platform.launcher }}
  hardware: {{ .Values.platform.hardware | quote }}
  {{- with .Values.platform.node_tasks }}
  node_tasks: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.platform.steps }}
  steps: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.dask.enabled }}
  dask: {scheduler: tls://{{ .Release.Name }}-dask:8786, certificates: /secrets/dask}
  {{- end }}
  {{- with .Values.platform.quarantine }}
  quarantine: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.platform.serving }}
  {{- $hosts := concat ($.Values.identity.hosts.serving | list | compact) (.hosts | default list) | uniq }}
  serving: {{- merge (dict "front_image" $.Values.images.platform) (ternary (dict "hosts" $hosts) dict (gt (len $hosts) 0)) . | toYaml | nindent 4 }}
  {{- end }}
  cluster: {{- merge $cluster (dict "patch" $patch "environment" $environment) $theirs | toYaml | nindent 4 }}
{{- end }}

{{- /* The port of the exporter in each pod of a training. */ -}}
{{- define "slipway.jobMetricsPort" -}}
{{- dig "environment" "SLIPWAY_METRICS_PORT" "9466" .Values.platform.cluster -}}
{{- end }}

{{- /* The patch of trainings' pods: the registry's Secrets, the object store's credentials and the keys as files, and the
     port by which Prometheus finds the exporter. */ -}}
{{- define "slipway.patch" -}}
{{- if or .Values.images.pullSecrets .Values.objectStore.secret .Values.checkpoints.secret .Values.metrics.enabled -}}
spec:
  {{- with .Values.images.pullSecrets }}
  imagePullSecrets: {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- if or .Values.objectStore.secret .Values.checkpoints.secret }}
  volumes:
    {{- with .Values.objectStore.secret }}
    - {name: object-store, secret: {secretName: {{ . }}, defaultMode: 0440}}
    {{- end }}
    {{- with .Values.checkpoints.secret }}
    - {name: checkpoint-keys, secret: {secretName: {{ . }}, defaultMode: 0440}}
    {{- end }}
  {{- end }}
  {{- if or .Values.objectStore.secret .Values.checkpoints.secret .Values.metrics.enabled }}
  containers:
    - name: trainer
      {{- if .Values.metrics.enabled }}
      ports:
        - {name: metrics, containerPort: {{ include "slipway.jobMetricsPort" . }}}
      {{- end }}
      {{- if or .Values.objectStore.secret .Values.checkpoints.secret }}
      volumeMounts:
        {{- if .Values.objectStore.secret }}
        - {name: object-store, mountPath: /secrets/object-store, readOnly: true}
        {{- end }}
        {{- if .Values.checkpoints.secret }}
        - {name: checkpoint-keys, mountPath: /secrets/checkpoints, readOnly: true}
        {{- end }}
      {{- end }}
  {{- end }}
{{- end }}
{{- end }}
