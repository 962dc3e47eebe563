{{- define "lakewarden.selector" -}}
app.kubernetes.io/name: lakewarden
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lakewarden.labels" -}}
{{ include "lakewarden.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "lakewarden.name" -}}
{{ printf "%s-lakewarden" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "lakewarden.image" -}}
{{ required "Set image.repository to the image that you built." .Values.image.repository }}:{{ required "Set image.tag to the release that you built." .Values.image.tag }}
{{- end }}

{{- define "lakewarden.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* What each container of the catalog sees. */ -}}
{{- define "lakewarden.environment" -}}
- {name: LAKEWARDEN_CONFIG, value: /etc/lakewarden/lakewarden.toml}
- {name: LAKEWARDEN_DATA_DIR, value: /var/lib/lakewarden}
- {name: LAKEWARDEN_HTTP__HOST, value: 0.0.0.0}
- {name: LAKEWARDEN_HTTP__PORT, value: "8181"}
- {name: LAKEWARDEN_HTTP__TLS__CERTIFICATE_FILE, value: /run/tls/tls.crt}
- {name: LAKEWARDEN_HTTP__TLS__KEY_FILE, value: /run/tls/tls.key}
- {name: LAKEWARDEN_AUDIT__KEY_FILE, value: /run/lakewarden/audit.key}
- {name: LAKEWARDEN_SECRETS_DIRECTORY, value: /run/lakewarden/settings}
{{- end }}

{{- define "lakewarden.mounts" -}}
- {name: settings, mountPath: /etc/lakewarden, readOnly: true}
- {name: tls, mountPath: /run/tls, readOnly: true}
- {name: private, mountPath: /run/lakewarden, readOnly: true}
- {name: data, mountPath: /var/lib/lakewarden}
- {name: tmp, mountPath: /tmp}
{{- end }}
