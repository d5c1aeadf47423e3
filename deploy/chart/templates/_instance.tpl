{{- /* Dagster's settings. A setting with a reason beside it avoids a trap; tests/deploy checks each. */ -}}
{{- define "slipway.instance" -}}
telemetry: {enabled: false}
nux: {enabled: false}

# SQLite on a volume that pods share loses data. The service is a section of pg_service.conf, a mounted Secret: no
# password is in the environment or in the arguments of runs. The URL names the driver: SQLAlchemy's default is another.
storage:
  postgres:
    postgres_url: postgresql+psycopg2:///?service=dagster

# The pods of runs write their output here, and the webserver reads it.
compute_logs:
  module: dagster._core.storage.local_compute_log_manager
  class: LocalComputeLogManager
  config: {base_dir: {{ .Values.volumes.durable.path }}/dagster/compute-logs}

local_artifact_storage:
  module: dagster._core.storage.root
  class: LocalArtifactStorage
  config: {base_dir: /tmp/dagster}

run_coordinator:
  module: slipway.resources.run_coordinator
  class: AttributingRunCoordinator
  config:
    # By kind of work alone (resources/run_kinds.py): one number for all would let runs that wait for trainings hold up
    # the others. Verbs and recovery have no limit.
    max_concurrent_runs: -1
    tag_concurrency_limits:
      {{- range $kind, $limit := .Values.runs.maxConcurrent }}
      - {key: slipway/kind, value: {{ $kind }}, limit: {{ $limit }}}
      {{- end }}
    dequeue_use_threads: true
    dequeue_num_workers: 4
    # A run whose pod cannot be made now, since the API server is away, stays in the queue: 10000 tries are 3 days.
    max_user_code_failure_retries: 10000
    user_code_failure_retry_delay: 30

# Dagster does not repeat a failed run: sensors start what is missing, and a second run adopts the jobs of the first.
run_retries: {enabled: false}

run_monitoring:
  enabled: true
  # With the default of 180 s, Dagster gives up runs whose image takes longer to arrive on a fresh node.
  start_timeout_seconds: {{ .Values.runs.startTimeoutSeconds }}
  cancel_timeout_seconds: 300
  # Above 0, cancelling a run leaves its steps running. A dead run is not resumed: the next run adopts its jobs.
  max_resume_run_attempts: 0
  # Without it, a cancelled or crashed run may hold its pool slots for ever.
  free_slots_after_run_end_seconds: 60
  poll_interval_seconds: 30

# Dagster's own launcher with one difference: a cluster that cannot be asked is not a dead run.
run_launcher:
  module: slipway.resources.kubernetes.run_launcher
  class: PatientRunLauncher
  config:
    load_incluster_config: true
    job_namespace: {{ .Release.Namespace }}
    service_account_name: {{ .Release.Name }}-run
    instance_config_map: {{ .Release.Name }}-instance
    dagster_home: /etc/dagster
    job_image: {{ .Values.images.platform }}
    image_pull_policy: {{ .Values.images.pullPolicy }}
    image_pull_secrets: {{- if .Values.images.pullSecrets }}{{ range .Values.images.pullSecrets }}
      - name: {{ . }}
      {{- end }}{{ else }} []{{ end }}
    labels: {{- include "slipway.labels" (dict "root" . "component" "run") | nindent 6 }}
    env_vars:
      {{- range $name, $value := include "slipway.environment" . | fromYaml }}
      {{- if ne $name "DAGSTER_HOME" }}
      - {{ printf "%s=%s" $name $value | quote }}
      {{- end }}
      {{- end }}
    volumes: {{- include "slipway.volumes" (dict "root" . "component" "run") | nindent 6 }}
    volume_mounts: {{- include "slipway.mounts" (dict "root" . "component" "run") | nindent 6 }}
    resources: {{- include "slipway.resources" .Values.runs.resources | nindent 6 }}
    security_context: {{- include "slipway.containerSecurity" . | nindent 6 }}
    run_k8s_config:
      job_spec_config:
        # A second pod of a step exits with 0 at once, and the step stays in progress for ever.
        backoff_limit: 0
        ttl_seconds_after_finished: {{ .Values.runs.keepSeconds }}
      pod_spec_config:
        enable_service_links: false
        {{- with .Values.priorityClass }}
        priority_class_name: {{ . }}
        {{- end }}
        security_context: {{- include "slipway.podSecurity" . | nindent 10 }}
        node_selector: {{- toYaml .Values.runs.nodeSelector | nindent 10 }}
        tolerations: {{- include "slipway.tolerations" (dict "root" . "theirs" .Values.runs.tolerations) | trim | nindent 10 }}
    # Every person who may launch a run may tag it. Tags may ask for amounts and places, not for accounts, mounts or
    # images.
    only_allow_user_defined_env_vars: []
    only_allow_user_defined_k8s_config_fields:
      container_config: {resources: true}
      pod_spec_config: {node_selector: true, affinity: true, tolerations: true}
      pod_template_spec_metadata: {}
      job_metadata: {}
      job_spec_config: {}
      namespace: false

sensors: {use_threads: true, num_workers: 8}
schedules: {use_threads: true, num_workers: 4}

retention:
  sensor:
    purge_after_days: {skipped: 1, success: 7, failure: 30, started: 1}
  schedule:
    purge_after_days: {skipped: 7, success: 30, failure: 30, started: 7}
{{- end }}
