{{- define "toolgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "toolgate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "toolgate.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "toolgate.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "toolgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "toolgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "toolgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "toolgate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "toolgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "toolgate.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "toolgate.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* "yes" if there may be more than one replica. */}}
{{- define "toolgate.hasReplicas" -}}
{{- if .Values.autoscaling.enabled }}
{{- if gt (int .Values.autoscaling.maxReplicas) 1 }}yes{{ end }}
{{- else if gt (int .Values.replicaCount) 1 }}yes{{ end }}
{{- end }}

{{/* Values that contradict each other end the rendering with a sentence. */}}
{{- define "toolgate.check" -}}
{{- $postgres := eq .Values.database.type "postgres" }}
{{- if and (include "toolgate.hasReplicas" .) (not $postgres) }}
{{- fail "more than one replica needs Postgres: set database.type=postgres, or replicaCount=1 without autoscaling" }}
{{- end }}
{{- if and $postgres (not .Values.existingSecret) }}
{{- fail "database.type=postgres needs existingSecret: a Secret with secret-key, and database-url or postgres-password" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas must not be greater than autoscaling.maxReplicas" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (not .Values.autoscaling.targetCPUUtilizationPercentage) (not .Values.autoscaling.targetMemoryUtilizationPercentage) }}
{{- fail "autoscaling needs a target: set autoscaling.targetCPUUtilizationPercentage or targetMemoryUtilizationPercentage" }}
{{- end }}
{{- $own := list "DATABASE_LISTEN_URL" "DATABASE_POOL" "DATABASE_URL" "HOME" "HOST" "INIT_SECRET" "INTERNAL_URL" "PORT" "POD_IP" "POSTGRES_DB" "POSTGRES_HOST" "POSTGRES_PASSWORD" "POSTGRES_PORT" "POSTGRES_USER" "PUBLIC_URL" "SERVER_MODE" "SQLITE_DB_PATH" "TOOLGATE_SECRET_KEY" "TRUST_PROXY" }}
{{- range $name := keys .Values.settings | sortAlpha }}
{{- if has $name $own }}
{{- fail (printf "settings.%s: the chart sets this variable itself, from another value or from existingSecret" $name) }}
{{- end }}
{{- end }}
{{- end }}
