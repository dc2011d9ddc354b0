{{- define "hanse.labels" -}}
app.kubernetes.io/name: hanse
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: hanse
{{- end -}}

{{- define "hanse.selector" -}}
app.kubernetes.io/name: hanse
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "hanse.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}{{ if hasPrefix "sha256:" $tag }}@{{ else }}:{{ end }}{{ $tag }}
{{- end -}}

{{- /* Who Hanse's own processes are to the API server, as CEL strings. */ -}}
{{- define "hanse.managerUser" -}}
'system:serviceaccount:{{ .Release.Namespace }}:hanse-manager'
{{- end -}}
{{- define "hanse.kubeletUser" -}}
'system:serviceaccount:{{ .Release.Namespace }}:hanse-kubelet'
{{- end -}}

{{- define "hanse.gatewayUser" -}}
'system:serviceaccount:{{ include "hanse.networkNamespace" . }}:hanse-gateway'
{{- end -}}

{{- /* Whether the request is for a namespace in which no pods are moved, as CEL. */ -}}
{{- define "hanse.isOfTheSystem" -}}
request.namespace == '{{ .Release.Namespace }}' || request.namespace.startsWith('kube-') || request.namespace.startsWith('hanse-')
{{- end -}}

{{- /* Whether the manager writes what only moves of pods need, as CEL: hanse-own-moves looks at that. */ -}}
{{- define "hanse.isOfAMove" -}}
request.userInfo.username == {{ include "hanse.managerUser" . }} && request.resource.group == '' &&
request.resource.resource == 'pods' && request.?subResource.orValue('') in ['', 'eviction'] && (
  object == null || oldObject == null ||
  dyn(oldObject).?spec.?schedulingGates.orValue([]).exists(g, g.name == 'hanse.dev/move') ||
  dyn(object).metadata.?labels.orValue({}) != dyn(oldObject).metadata.?labels.orValue({}) ||
  dyn(object).metadata.?annotations.orValue({}) != dyn(oldObject).metadata.?annotations.orValue({}) ||
  dyn(object).metadata.?ownerReferences.orValue([]) != dyn(oldObject).metadata.?ownerReferences.orValue([]))
{{- end -}}

{{- /* Where the gateway and the fabric run: v1alpha1.NetworkNamespace. */ -}}
{{- define "hanse.networkNamespace" -}}
{{ .Release.Namespace }}-network
{{- end -}}

{{- /* What the network is made of. */ -}}
{{- define "hanse.networkRules" -}}
- apiGroups: [hanse.dev]
  resources: [connections]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [nodes, namespaces, pods]
  verbs: [get, list, watch]
# Copies of Services of peers: where their cluster IPs are, and which names this cluster's DNS knows.
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
{{- end -}}

{{- /* The flags of the gateway and the fabric: .root, .process (its values), .metricsPort, .healthPort. */ -}}
{{- define "hanse.networkArgs" -}}
- --namespace={{ .root.Release.Namespace }}
- --metrics-bind-address=:{{ .metricsPort }}
- --health-probe-bind-address=:{{ .healthPort }}
- --log-format={{ .root.Values.log.format }}
- -v={{ .root.Values.log.level }}
{{- with .process.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hanse.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{- /* The binding that puts a ValidatingAdmissionPolicy in force everywhere: .root, .policy (its name). */ -}}
{{- define "hanse.enforce" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .policy }}
  labels: {{- include "hanse.labels" .root | nindent 4 }}
spec:
  policyName: {{ .policy }}
  validationActions: [Deny]
{{- end -}}

{{- /* The kinds of a list of values as JSON. Those with which a peer could run pods, or give rights, past all checks are refused. */ -}}
{{- define "hanse.kinds" -}}
{{- range . }}
{{- $httpRoute := and (eq .group "gateway.networking.k8s.io") (eq .kind "HTTPRoute") }}
{{- if or (not (contains "." .group)) (eq .group "hanse.dev") (hasSuffix ".hanse.dev" .group) (and (hasSuffix ".k8s.io" .group) (not $httpRoute)) }}
{{- fail (printf "reflectedKinds and allowedKinds: kind %s of group %q is one of Kubernetes itself, of *.k8s.io or of hanse.dev, of which only HTTPRoutes can be named: with others a peer could run pods, or give rights, past all checks" .kind .group) }}
{{- end }}
{{- end }}
{{- toJson (. | default list) }}
{{- end -}}

{{- /* The names of the definitions that the manager may install, as JSON. */ -}}
{{- define "hanse.definitions" -}}
{{- $names := list }}
{{- range include "hanse.kinds" .Values.allowedKinds | fromJsonArray }}
{{- if .definition }}{{ $names = append $names (printf "%s.%s" .resource .group) }}{{ end }}
{{- end }}
{{- toJson $names }}
{{- end -}}

{{- /* How many bytes the labels and annotations of the object o have, as CEL. */ -}}
{{- define "hanse.bytesOfNotes" -}}
o.?metadata.?labels.orValue({}).transformList(key, value, key.size() + value.size()).sum() +
o.?metadata.?annotations.orValue({}).transformList(key, value, key.size() + bytes(value).size()).sum()
{{- end -}}

{{- /* How many bytes the account has of who wrote which field of it, as CEL. A peer can invent that: an honest account of
what a peer writes is not deeper than the ports of a Service. */ -}}
{{- define "hanse.bytesOfManagers" -}}
o.?metadata.?managedFields.orValue([]).map(entry, 128 + dyn(entry).?fieldsV1.orValue({}).transformList(a, inA,
  a.size() + inA.transformList(b, inB, b.size() + inB.transformList(c, inC,
    c.size() + inC.transformList(d, inD, d.size() + (inD.size() == 0 ? 0 : 1048576)).sum()).sum()).sum()).sum()).sum()
{{- end -}}

{{- /* How many bytes the Service or ShadowEndpointSlice o has, as CEL. */ -}}
{{- define "hanse.bytesOfService" -}}
o.?spec.?selector.orValue({}).transformList(key, value, key.size() + value.size()).sum() +
o.?spec.?ports.orValue([]).map(port, 64 + port.?name.orValue('').size() + port.?appProtocol.orValue('').size()).sum() +
o.?spec.?endpoints.orValue([]).map(e, 64 + e.?addresses.orValue([]).map(a, 3 + a.size()).sum() +
  e.?hostname.orValue('').size() + e.?zone.orValue('').size() + e.?forZones.orValue([]).map(zone, 3 + zone.size()).sum()).sum()
{{- end -}}

{{- /* What an object weighs, as CEL: its bytes in steps, of which the smallest is for what each object weighs besides. A
change within a step passes when there is no room. In etcd, each quote and each backslash of what a message has as text is two
bytes. */ -}}
{{- define "hanse.weight" -}}
[{{ . }}].map(o, (
  {{- include "hanse.bytesOfNotes" . | nindent 2 }} +
  {{- include "hanse.bytesOfManagers" . | nindent 2 }} +
  o.?data.orValue({}).transformList(key, value, key.size() + value.size()).sum() +
  o.?binaryData.orValue({}).transformList(key, value, key.size() + value.size()).sum() +
  {{- include "hanse.bytesOfService" . | nindent 2 }} +
  [o.?spec.?pod.orValue('') + o.?spec.?onward.orValue('') + o.?spec.?object.orValue('')].map(text,
    bytes(text).size() + 2 * text.size() - text.replace('"', '').size() - text.replace('\\', '').size())[0]) / 1024 * 1024 + 1024)[0]
{{- end -}}

{{- /* The flags that every subcommand has. */ -}}
{{- define "hanse.args" -}}
- --namespace={{ .root.Release.Namespace }}
- --leader-elect=true
- --metrics-bind-address=:{{ .metricsPort | default 8080 }}
- --health-probe-bind-address=:{{ .healthPort | default 8081 }}
- --log-format={{ .root.Values.log.format }}
- -v={{ .root.Values.log.level }}
{{- with .process.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* A Deployment of one subcommand: .root, .component, .process (its values), .args (flags of its own), and, if it is on
the network of its node, .namespace, .hostNetwork, .metricsPort and .healthPort; and .mounts: Secrets,
each under the name of the folder where it is mounted. */ -}}
{{- define "hanse.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: hanse-{{ .component }}
  namespace: {{ .namespace | default .root.Release.Namespace }}
  labels:
    {{- include "hanse.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  replicas: {{ .process.replicas }}
  # The old one stops at once and lets go of its lease: what it did is in API objects.
  strategy:
    {{- if .hostNetwork }}
    type: Recreate # two would want the same ports
    {{- else }}
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
    {{- end }}
  selector:
    matchLabels: {{- include "hanse.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "hanse.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
    spec:
      serviceAccountName: hanse-{{ .component }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      priorityClassName: system-cluster-critical
      {{- if .hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: hanse.dev/type, operator: NotIn, values: [virtual-node]}
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels: {{- include "hanse.selector" . | nindent 20 }}
      {{- with .process.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .process.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: {{ .component }}
          image: {{ include "hanse.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          # So that the status of a pod that ended says why.
          terminationMessagePolicy: FallbackToLogsOnError
          args:
            - {{ .component }}
            {{- include "hanse.args" . | nindent 12 }}
            {{- range .args }}
            - {{ . }}
            {{- end }}
          env:
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: POD_IP
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
            - name: POD_IPS
              valueFrom: {fieldRef: {fieldPath: status.podIPs}}
          ports:
            - {name: metrics, containerPort: {{ .metricsPort | default 8080 }}}
            - {name: health, containerPort: {{ .healthPort | default 8081 }}}
          startupProbe:
            httpGet: {path: /healthz, port: health}
            periodSeconds: 1
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: health}
            periodSeconds: 20
            timeoutSeconds: 5
          readinessProbe:
            httpGet: {path: /readyz, port: health}
            periodSeconds: 5
            timeoutSeconds: 5
          resources: {{- toYaml .process.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          {{- with .mounts }}
          volumeMounts:
            {{- range $name, $secret := . }}
            - {name: {{ $name }}, mountPath: /{{ $name }}, readOnly: true}
            {{- end }}
      volumes:
        {{- range $name, $secret := . }}
        - name: {{ $name }}
          secret: {secretName: {{ $secret }}}
        {{- end }}
          {{- end }}
{{- end -}}

{{/*
Whether what is written is marked as of a multi-cluster Service, before and after, in a namespace of a user.
*/}}
{{- define "hanse.isOfClusterSet" -}}
(!(request.namespace in ['default', '{{ .Release.Namespace }}']) &&
  !request.namespace.startsWith('kube-') && !request.namespace.startsWith('hanse-') &&
  namespaceObject.metadata.?labels[?'hanse.dev/managed'].orValue('') != 'true' &&
  [object, oldObject].filter(o, o != null).map(o, dyn(o)).all(o,
    o.?metadata.?labels[?'hanse.dev/cluster-set'].orValue('') == 'true'))
{{- end }}
