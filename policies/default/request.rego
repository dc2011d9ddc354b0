# What Hanse answers to `request` where there is no policy: what a consumer asks for is reserved, if there is room.
#
# Limits of peers are no policy, and always hold. To change the answer, write modules of `package hanse.request`.
package hanse.defaults.request

allow := true
