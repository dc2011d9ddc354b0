// SPDX-License-Identifier: Apache-2.0

// Package market has Applications placed as a whole: it chooses clusters for their components, asks these to reserve room by
// Requests in our tenant namespaces there, renews what was agreed, and gives it back. Where the pods go then is the matter of
// package namespaces, which reads the status of Applications.
//
// What becomes of an Application is decided in decide.go, from what observe.go has found. The decision is in the status before
// anything is asked for, so that a manager that is killed in between finds what it may have left at peers. Where clusters are chosen
// by what they offer, auction.go decides, and auction_invite.go asks them.
package market
