{{- define "srm.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "srm.config" -}}
{{ .Values.existingSecret | default (printf "%s-config" .Release.Name) }}
{{- end }}

{{/* Labels of an object; call with (dict "root" $ "part" "service"). */}}
{{- define "srm.labels" -}}
{{ include "srm.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "srm.selector" -}}
app.kubernetes.io/name: srm
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* What all pods have; call as srm.pod with (dict "root" $). */}}
{{- define "srm.pod" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 50000
  fsGroup: 50000
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: config
    secret: {secretName: {{ include "srm.config" .root }}}
  {{- range .root.Values.secretMounts }}
  - name: {{ .name }}
    secret: {secretName: {{ .name }}}
  {{- end }}
{{- end }}

{{- define "srm.container" -}}
image: {{ include "srm.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: config, mountPath: /etc/srm, readOnly: true}
  {{- range .root.Values.secretMounts }}
  - {name: {{ .name }}, mountPath: {{ .path }}, readOnly: true}
  {{- end }}
{{- end }}

{{/* Spark's settings where executors are pods, as YAML. */}}
{{- define "srm.sparkConf" -}}
{{- $conf := dict
  "spark.kubernetes.container.image" (include "srm.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.authenticate.driver.serviceAccountName" (printf "%s-replicator" .Release.Name)
  (printf "spark.kubernetes.driver.secrets.%s" (include "srm.config" .)) "/etc/srm"
  (printf "spark.kubernetes.executor.secrets.%s" (include "srm.config" .)) "/etc/srm"
  "spark.executor.instances" (.Values.replicator.executors | toString)
  "spark.executor.cores" "1"
  "spark.kubernetes.executor.request.cores" "500m"
  "spark.executor.memory" .Values.replicator.executorMemory
  "spark.executor.memoryOverhead" .Values.replicator.executorMemoryOverhead
  "spark.driver.memory" "512m"
  "spark.driver.memoryOverhead" "512m"
  "spark.dynamicAllocation.enabled" "false"
  "spark.executor.failuresValidityInterval" "1h"
-}}
{{- range .Values.secretMounts }}
{{- $_ := set $conf (printf "spark.kubernetes.driver.secrets.%s" .name) .path }}
{{- $_ := set $conf (printf "spark.kubernetes.executor.secrets.%s" .name) .path }}
{{- end }}
{{- toYaml (merge (deepCopy .Values.replicator.conf) $conf) }}
{{- end }}

{{/* Arguments of the replicator, as a YAML list. */}}
{{- define "srm.arguments" -}}
{{- $words := list "--config" "/etc/srm/srm.properties" }}
{{- range .Values.replicator.flows }}{{ $words = concat $words (list "--flow" .) }}{{ end }}
{{- toYaml $words }}
{{- end }}
