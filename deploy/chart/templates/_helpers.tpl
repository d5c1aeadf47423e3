{{- /* Parts that several objects share. A component is one of webserver, code, daemon, mlflow, run, dask,
     builder, metrics, logs, trainer. */ -}}

{{- define "slipway.labels" -}}
app.kubernetes.io/name: slipway
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: slipway
{{- with .component }}
slipway/component: {{ . }}
{{- end }}
{{- end }}

{{- define "slipway.metadata" -}}
name: {{ .root.Release.Name }}-{{ .component }}
namespace: {{ .namespace | default .root.Release.Namespace }}
labels: {{- include "slipway.labels" . | nindent 2 }}
{{- end }}

{{- define "slipway.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
slipway/component: {{ .component }}
{{- end }}

{{- define "slipway.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
fsGroup: {{ .Values.user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "slipway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "slipway.resources" -}}
requests: {cpu: {{ .cpu | quote }}, memory: {{ .memoryRequest | default .memory | quote }}, ephemeral-storage: {{ .storage | quote }}}
limits: {memory: {{ .memory | quote }}, ephemeral-storage: {{ .storage | quote }}}
{{- end }}

{{- /* A pod of a node that does not answer is given up after this while: with Kubernetes' own 300 s, sensors would be
     away for as long. */ -}}
{{- define "slipway.tolerations" -}}
{{- range $condition := list "not-ready" "unreachable" }}
- {key: node.kubernetes.io/{{ $condition }}, operator: Exists, effect: NoExecute, tolerationSeconds: {{ $.root.Values.unreachableSeconds }}}
{{- end }}
{{- with .theirs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The environment of every container of the platform's image. Secrets are files; these variables hold their paths. */ -}}
{{- define "slipway.environment" -}}
DAGSTER_HOME: /etc/dagster
HOME: /tmp
PGSERVICEFILE: /secrets/postgresql/pg_service.conf
SLIPWAY_PLATFORM: /etc/slipway/platform/platform.yaml
{{- include "slipway.objectStoreEnvironment" . | nindent 0 }}
{{- end }}

{{- /* That of one component: what runs the tasks of builds knows neither the database nor the settings. */ -}}
{{- define "slipway.environmentOf" -}}
{{- if has .component (list "dask" "builder") -}}
HOME: /tmp
{{- if eq .component "builder" }}
{{- include "slipway.objectStoreEnvironment" .root | nindent 0 }}
{{- end }}
{{- else -}}
{{- include "slipway.environment" .root }}
{{- end }}
{{- end }}

{{- define "slipway.objectStoreEnvironment" -}}
{{- with .Values.objectStore -}}
{{- if .secret }}
AWS_SHARED_CREDENTIALS_FILE: /secrets/object-store/credentials
{{- end }}
{{- if .endpoint }}
AWS_ENDPOINT_URL: {{ .endpoint | quote }}
{{- end }}
{{- if .region }}
AWS_DEFAULT_REGION: {{ .region | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Not empty where the values ask for the component. */ -}}
{{- define "slipway.has" -}}
{{- $wanted := dict "mlflow" .root.Values.mlflow.enabled "proxy" .root.Values.identity.issuer "dex" .root.Values.dex.image "dask" .root.Values.dask.enabled "builder" .root.Values.dask.enabled "metrics" .root.Values.metrics.enabled "logs" .root.Values.logs.image -}}
{{- if or (not (hasKey $wanted .component)) (get $wanted .component) }}true{{ end }}
{{- end }}

{{- /* The header in which a proxy names the person. With --prefer-email-to-user, oauth2-proxy sends the address of mail as
X-Forwarded-User, in place of what the client sent; it leaves X-Forwarded-Email as the client sent it
(pkg/apis/options/legacy_options.go, getPassUserHeaders). */ -}}
{{- define "slipway.userHeader" -}}
{{- ternary "X-Forwarded-User" .Values.identity.userHeader (ne .Values.identity.issuer "") -}}
{{- end }}

{{- /* The names under which the webserver answers browsers: its Service's, and those by which people reach it. */ -}}
{{- define "slipway.hosts" -}}
{{- $name := printf "%s-webserver" .Release.Name -}}
{{- $full := printf "%s.%s" $name .Release.Namespace -}}
{{- $service := list $name $full (printf "%s.svc" $full) (printf "%s.svc.cluster.local" $full) -}}
{{- concat $service (.Values.identity.hosts.webserver | list | compact) .Values.webserver.hosts | uniq | join "," -}}
{{- end }}

{{- /* The components that know the token: two ask for it, and what asks MLflow shows MLflow by it who it is. */ -}}
{{- define "slipway.knowsToken" -}}
{{ ternary (list "webserver" "mlflow" "code" "run") (list "webserver") .Values.mlflow.enabled | toJson }}
{{- end }}

{{- /* Volumes and mounts, by component; `mlflow` mounts no data, `webserver` and `metrics` only read. */ -}}
{{- define "slipway.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- if not (has .component (list "dask" "builder")) }}
- {name: postgresql, secret: {secretName: {{ .root.Values.postgresql.secret }}, defaultMode: 0440}}
{{- end }}
{{- if and (has .component (list "dask" "builder" "run")) .root.Values.dask.enabled }}
- {name: dask, secret: {secretName: {{ .root.Values.dask.secret }}, defaultMode: 0440}}
{{- end }}
{{- if not (has .component (list "mlflow" "dask" "builder")) }}
- {name: instance, configMap: {name: {{ .root.Release.Name }}-instance}}
{{- end }}
{{- if not (has .component (ternary (list "dask" "builder") (list "mlflow" "dask" "builder") (ne .root.Values.identity.secret ""))) }}
- {name: platform, configMap: {name: {{ .root.Release.Name }}-platform}}
{{- end }}
{{- if and .root.Values.identity.secret (has .component (include "slipway.knowsToken" .root | fromYamlArray)) }}
- {name: identity, secret: {secretName: {{ .root.Values.identity.secret }}, items: [{key: token, path: token}], defaultMode: 0440}}
{{- end }}
{{- if has .component (list "webserver" "code" "run" "builder" "metrics") }}
- {name: durable, persistentVolumeClaim: {claimName: {{ .root.Values.volumes.durable.claim }}}}
{{- end }}
{{- if and (has .component (list "code" "run" "builder")) .root.Values.volumes.corpora.claim }}
- {name: corpora, persistentVolumeClaim: {claimName: {{ .root.Values.volumes.corpora.claim }}, readOnly: true}}
{{- end }}
{{- if and (has .component (list "code" "run" "mlflow" "builder")) .root.Values.objectStore.secret }}
- {name: object-store, secret: {secretName: {{ .root.Values.objectStore.secret }}, defaultMode: 0440}}
{{- end }}
{{- if and (eq .component "run") .root.Values.checkpoints.secret }}
- {name: checkpoint-keys, secret: {secretName: {{ .root.Values.checkpoints.secret }}, defaultMode: 0440}}
{{- end }}
{{- if and (has .component (list "code" "run")) .root.Values.platform.tracking.secret }}
- {name: tracking, secret: {secretName: {{ .root.Values.platform.tracking.secret }}, defaultMode: 0440}}
{{- end }}
{{- if and (has .component (list "code" "run")) .root.Values.platform.secret }}
- {name: platform-secrets, secret: {secretName: {{ .root.Values.platform.secret }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{- define "slipway.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if not (has .component (list "dask" "builder")) }}
- {name: postgresql, mountPath: /secrets/postgresql, readOnly: true}
{{- end }}
{{- if and (has .component (list "dask" "builder" "run")) .root.Values.dask.enabled }}
- {name: dask, mountPath: /secrets/dask, readOnly: true}
{{- end }}
{{- if not (has .component (list "mlflow" "dask" "builder")) }}
- {name: instance, mountPath: /etc/dagster, readOnly: true}
{{- end }}
{{- if not (has .component (ternary (list "dask" "builder") (list "mlflow" "dask" "builder") (ne .root.Values.identity.secret ""))) }}
- {name: platform, mountPath: /etc/slipway/platform, readOnly: true}
{{- end }}
{{- if and .root.Values.identity.secret (has .component (include "slipway.knowsToken" .root | fromYamlArray)) }}
- {name: identity, mountPath: /secrets/identity, readOnly: true}
{{- end }}
{{- if has .component (list "webserver" "code" "run" "builder" "metrics") }}
- {name: durable, mountPath: {{ .root.Values.volumes.durable.path }}{{ if has .component (list "webserver" "metrics") }}, readOnly: true{{ end }}}
{{- end }}
{{- if and (has .component (list "code" "run" "builder")) .root.Values.volumes.corpora.claim }}
- {name: corpora, mountPath: {{ .root.Values.volumes.corpora.path }}, readOnly: true}
{{- end }}
{{- if and (has .component (list "code" "run" "mlflow" "builder")) .root.Values.objectStore.secret }}
- {name: object-store, mountPath: /secrets/object-store, readOnly: true}
{{- end }}
{{- if and (eq .component "run") .root.Values.checkpoints.secret }}
- {name: checkpoint-keys, mountPath: /secrets/checkpoints, readOnly: true}
{{- end }}
{{- if and (has .component (list "code" "run")) .root.Values.platform.tracking.secret }}
- {name: tracking, mountPath: /secrets/tracking, readOnly: true}
{{- end }}
{{- if and (has .component (list "code" "run")) .root.Values.platform.secret }}
- {name: platform-secrets, mountPath: /secrets/platform, readOnly: true}
{{- end }}
{{- end }}

{{- /* A Deployment without its container's command, ports and probes, which are `.container`. */ -}}
{{- define "slipway.deployment" -}}
{{- $values := index .root.Values .component -}}
apiVersion: apps/v1
kind: Deployment
metadata: {{- include "slipway.metadata" . | nindent 2 }}
spec:
  replicas: {{ $values.replicas | default 1 }}
  strategy: {type: {{ .strategy | default "RollingUpdate" }}}
  selector:
    matchLabels: {{- include "slipway.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "slipway.labels" . | nindent 8 }}
      annotations:
        # Processes read their settings when they start: changed settings must start new pods.
        slipway/settings: {{ printf "%s%s" (include "slipway.instance" .root) (include "slipway.platform" .root) | sha256sum }}
    spec:
      serviceAccountName: {{ .root.Release.Name }}-{{ .component }}
      automountServiceAccountToken: {{ not (has .component (list "mlflow" "dask" "builder")) }}
      enableServiceLinks: false
      {{- with .runtimeClass }}
      runtimeClassName: {{ . }}
      {{- end }}
      {{- with .root.Values.priorityClass }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .root.Values.images.pullSecrets }}
      imagePullSecrets: {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      securityContext: {{- include "slipway.podSecurity" .root | nindent 8 }}
      nodeSelector: {{- toYaml $values.nodeSelector | nindent 8 }}
      tolerations: {{- include "slipway.tolerations" (dict "root" .root "theirs" $values.tolerations) | trim | nindent 8 }}
      containers:
        - name: {{ .component }}
          image: {{ .root.Values.images.platform }}
          imagePullPolicy: {{ .root.Values.images.pullPolicy }}
          securityContext: {{- include "slipway.containerSecurity" .root | nindent 12 }}
          resources: {{- include "slipway.resources" $values.resources | nindent 12 }}
          env:
            {{- range $name, $value := include "slipway.environmentOf" . | fromYaml }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
            {{- if and .root.Values.identity.secret (has .component (list "webserver" "mlflow")) }}
            - {name: SLIPWAY_TOKEN_FILE, value: /secrets/identity/token}
            {{- end }}
            {{- if eq .component "webserver" }}
            - {name: SLIPWAY_HOSTS, value: {{ include "slipway.hosts" .root | quote }}}
            {{- end }}
          volumeMounts: {{- include "slipway.mounts" . | nindent 12 }}
          {{- .container | nindent 10 }}
      volumes: {{- include "slipway.volumes" . | nindent 8 }}
{{- end }}
