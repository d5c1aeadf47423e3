{{- /* The platform's settings: what other values say already, then the user's own. */ -}}
{{- define "slipway.platform" -}}
{{- $volumes := dict .Values.volumes.durable.path .Values.volumes.durable.claim .Values.volumes.nvme.path .Values.volumes.nvme.claim -}}
{{- $cluster := dict
  "image" .Values.images.trainer
  "pull_policy" .Values.images.pullPolicy
  "namespace" .Values.training.namespace
  "user" .Values.user
  "service_account" (printf "%s-trainer" .Release.Name)
  "volumes" $volumes -}}
{{- $ours := include "slipway.patch" . | fromYaml -}}
{{- $theirs := .Values.platform.cluster -}}
{{- $environment := merge (dict) ($theirs.environment | default dict) (include "slipway.objectStoreEnvironment" . | fromYaml) -}}
{{- range $list := list "containers" "volumes" "imagePullSecrets" }}
{{- if and (dig "spec" $list "" $ours) (dig "patch" "spec" $list "" $theirs) }}{{ fail (printf "platform.cluster.patch: found spec.%s, which the chart writes here itself (pull secrets, the object store's); say it in recipes' patches" $list) }}{{ end }}
{{- end }}
{{- $patch := merge (dict) ($theirs.patch | default dict) $ours -}}
{{- $uri := .Values.platform.tracking.uri -}}
{{- if and .Values.mlflow.enabled $uri }}{{ fail "platform.tracking.uri: found one beside mlflow.enabled, expected one of them" }}{{ end }}
{{- if not (or .Values.mlflow.enabled $uri) }}{{ fail "platform.tracking.uri: found none, expected the server's, since mlflow.enabled is false" }}{{ end -}}
slipway: platform/1
revision: {{ .Values.platform.revision | quote }}
tiers: {{- merge (dict "durable" .Values.volumes.durable.path "nvme" .Values.volumes.nvme.path) .Values.platform.tiers | toYaml | nindent 2 }}
tracking: {uri: {{ $uri | default (printf "http://%s-mlflow:5000" .Release.Name) }}}
compute:
  launcher: {{ .Values.platform.launcher }}
  {{- with .Values.platform.node_tasks }}
  node_tasks: {{- toYaml . | nindent 4 }}
  {{- end }}
  cluster: {{- merge $cluster (dict "patch" $patch "environment" $environment) $theirs | toYaml | nindent 4 }}
{{- end }}

{{- /* What every pod of a training gets besides: the registry's Secrets, and the object store's credentials as a file. */ -}}
{{- define "slipway.patch" -}}
{{- if or .Values.images.pullSecrets .Values.objectStore.secret -}}
spec:
  {{- with .Values.images.pullSecrets }}
  imagePullSecrets: {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with .Values.objectStore.secret }}
  volumes:
    - {name: object-store, secret: {secretName: {{ . }}, defaultMode: 0440}}
  containers:
    - name: trainer
      volumeMounts:
        - {name: object-store, mountPath: /secrets/object-store, readOnly: true}
  {{- end }}
{{- end }}
{{- end }}
