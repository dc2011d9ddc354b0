// Package audit counts API requests from the audit log of an API server: who wrote what, and how often.
package audit
