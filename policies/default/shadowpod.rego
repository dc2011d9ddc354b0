# What Hanse answers to `shadowpod` where there is no policy: a consumer's pod runs as it is.
#
# The safety limits are no policy, and always hold. To change the answer, write modules of `package hanse.shadowpod`.
package hanse.defaults.shadowpod

allow := true
